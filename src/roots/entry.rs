//! The names under which roots stand at the top of the view.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::resolve::{NAME_MAX, Name, NameError};

/// What an entry name is chosen from.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The path as it was given.
    pub given: &'a Path,
    /// The object's own path: different for each candidate, and the order in which names are chosen.
    pub canonical: &'a Path,
    /// The name the operator asked for (`PATH=ENTRY`).
    pub asked: Option<&'a Name>,
    /// The name it had in the snapshot before.
    pub retained: Option<&'a Name>,
}

/// A name for each candidate, in their order; all distinct, and the same whatever that order is.
///
/// 1. A retained root keeps its name, whatever arrives.
/// 2. What the operator asked for comes next.
/// 3. The rest are named after the last component of the path they were given by, in the order of their own paths.
///
/// A taken name gets a suffix that depends on the root's own path: `app-3f2a`.
#[must_use]
pub fn assign(candidates: &[Candidate<'_>]) -> Vec<Name> {
    let mut order: Vec<(usize, &Candidate<'_>)> = candidates.iter().enumerate().collect();
    order.sort_by_key(|(_, c)| (c.retained.is_none(), c.asked.is_none(), c.canonical));
    let mut taken = HashSet::new();
    let mut named: Vec<(usize, Name)> = order
        .into_iter()
        .map(|(index, candidate)| {
            let wanted = candidate.retained.or(candidate.asked).cloned();
            let name = free(wanted.unwrap_or_else(|| plain(candidate.given)), candidate.canonical, &taken);
            taken.insert(name.clone());
            (index, name)
        })
        .collect();
    named.sort_unstable_by_key(|(index, _)| *index);
    named.into_iter().map(|(_, name)| name).collect()
}

/// The last component; `root` for `/`, which has none.
fn plain(given: &Path) -> Name {
    let last = given.file_name().and_then(|name| Name::new(name.as_bytes()).ok());
    last.unwrap_or_else(Name::root)
}

/// `wanted`, or the first of its suffixed forms that is free. The suffix is the path's hash, longer if it must be; only a
/// name made to collide with all sixteen digits gets past them.
fn free(wanted: Name, canonical: &Path, taken: &HashSet<Name>) -> Name {
    if !taken.contains(&wanted) {
        return wanted;
    }
    let hash = format!("{:016x}", fnv1a(canonical.as_os_str().as_bytes()));
    let by_digits = (4..=hash.len()).filter_map(|digits| hash.get(..digits)).map(|digits| format!("-{digits}"));
    let by_number = (2_u64..).map(|number| format!("-{hash}-{number}"));
    by_digits
        .chain(by_number)
        .filter_map(|suffix| suffixed(wanted.as_bytes(), &suffix).ok())
        .find(|name| !taken.contains(name))
        .unwrap_or(wanted)
}

/// `stem` and `suffix`, the stem cut so that both fit, not in the middle of a character if it is text.
fn suffixed(stem: &[u8], suffix: &str) -> Result<Name, NameError> {
    let room = NAME_MAX.saturating_sub(suffix.len());
    let cut = str::from_utf8(stem).map_or(room.min(stem.len()), |text| text.floor_char_boundary(room));
    Name::new([stem.get(..cut).unwrap_or_default(), suffix.as_bytes()].concat())
}

/// FNV-1a, 64 bits: tiny, and the same in every release, which `std`'s hashers do not promise.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;

    fn fresh(path: &Path) -> Candidate<'_> {
        Candidate { given: path, canonical: path, asked: None, retained: None }
    }

    fn names(candidates: &[Candidate<'_>]) -> Vec<String> {
        assign(candidates).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn hash_is_fnv1a() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn last_component_then_suffix() {
        let (a, b, top) = (Path::new("/a/app"), Path::new("/b/app"), Path::new("/"));
        let suffixed = format!("app-{}", &format!("{:016x}", fnv1a(b"/b/app"))[..4]);
        assert_eq!(names(&[fresh(b), fresh(a), fresh(top)]), [suffixed.as_str(), "app", "root"]);
    }

    #[test]
    fn given_spelling_names_it() {
        let via = Candidate { given: Path::new("/l/link"), ..fresh(Path::new("/real/dir")) };
        assert_eq!(names(&[via]), ["link"]);
    }

    #[test]
    fn retained_before_asked_before_order() {
        let app = Name::new("app").unwrap();
        let retained = Candidate { retained: Some(&app), ..fresh(Path::new("/z/app")) };
        let asked = Candidate { asked: Some(&app), ..fresh(Path::new("/m/other")) };
        let plain = fresh(Path::new("/a/app"));
        let got = names(&[plain, asked, retained]);
        assert_eq!(got[2], "app");
        assert!(got[0].starts_with("app-") && got[1].starts_with("app-") && got[0] != got[1]);
        assert_eq!(names(&[plain, asked])[1], "app");
    }

    #[test]
    fn long_names_are_cut() {
        let long = "\u{e4}".repeat(127);
        let (a, b) = (PathBuf::from(format!("/a/{long}")), PathBuf::from(format!("/b/{long}")));
        let got = names(&[fresh(&a), fresh(&b)]);
        assert_eq!(got[0], long);
        assert!(got[1].len() <= NAME_MAX && !got[1].contains('\u{fffd}'), "{}", got[1]);
    }

    #[test]
    fn every_suffix_taken() {
        let path = Path::new("/b/app");
        let hash = format!("{:016x}", fnv1a(b"/b/app"));
        let squatters: Vec<(PathBuf, Name)> = std::iter::once("app".to_owned())
            .chain((4..=16).map(|digits| format!("app-{}", &hash[..digits])))
            .map(|name| (PathBuf::from(format!("/s/{name}")), Name::new(&name).unwrap()))
            .collect();
        let mut all: Vec<_> = squatters.iter().map(|(p, n)| Candidate { asked: Some(n), ..fresh(p) }).collect();
        all.push(fresh(path));
        assert_eq!(names(&all).pop().unwrap(), format!("app-{hash}-2"));
    }

    /// Few names over few directories, so that most cases collide.
    fn path() -> impl Strategy<Value = PathBuf> {
        ("/[ab]{0,2}", "/(app|lib|app-[0-9a-f]{4}|x{252})").prop_map(|(dir, name)| PathBuf::from(dir + &name))
    }

    fn by_path(paths: &[PathBuf], kept: &BTreeMap<PathBuf, Name>) -> BTreeMap<PathBuf, Name> {
        let all: Vec<_> = paths.iter().map(|p| Candidate { retained: kept.get(p), ..fresh(p) }).collect();
        paths.iter().cloned().zip(assign(&all)).collect()
    }

    proptest! {
        #[test]
        fn order_does_not_matter_and_all_differ(
            (paths, shuffled) in prop::collection::btree_set(path(), 0..12)
                .prop_map(|set| set.into_iter().collect::<Vec<_>>())
                .prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle()))
        ) {
            let named = by_path(&paths, &BTreeMap::new());
            prop_assert_eq!(&named, &by_path(&shuffled, &BTreeMap::new()));
            let distinct: HashSet<_> = named.values().collect();
            prop_assert_eq!(distinct.len(), paths.len());
        }

        #[test]
        fn who_stays_keeps_the_name(
            before in prop::collection::btree_set(path(), 0..10),
            after in prop::collection::btree_set(path(), 0..10),
        ) {
            let old = by_path(&before.iter().cloned().collect::<Vec<_>>(), &BTreeMap::new());
            let new = by_path(&after.iter().cloned().collect::<Vec<_>>(), &old);
            for path in before.intersection(&after) {
                prop_assert_eq!(&old[path], &new[path]);
            }
            prop_assert_eq!(new.values().collect::<HashSet<_>>().len(), after.len());
        }
    }
}
