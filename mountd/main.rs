//! rootsfs
fn main() {}
