//! The allocator.

/// Gives freed memory back to the system. glibc keeps it otherwise unless it lies at the very end of the heap
/// (`malloc_trim(3)`); other C libraries do by themselves what they can.
#[allow(unsafe_code)]
pub(crate) fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a plain number and touches nothing that is allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}
