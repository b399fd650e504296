//! Roots on an overlay, as in every container: the first change of a file makes another file of it below.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::path::Path;
use std::process::Command;

use common::{Mounted, Trees, run, sh};

/// A lower layer, and how an overlay of it is mounted, its upper layer on the tmpfs.
const LOWER: &str = "mkdir lower upper work && cd lower && for f in open both shared; do echo lower > $f; done && mkdir d && echo x > d/x";

const WORK: &str = r#"
exec 7>>open; echo one >&7; cat open; echo two >&7; exec 7>&-; cat open
/usr/bin/python3 - <<'END'
import mmap, os, sqlite3
reader = os.open('both', os.O_RDONLY); writer = os.open('both', os.O_RDWR)
os.pwrite(writer, b'UPPER', 0); os.close(os.dup(writer))
print(open('both').read(), os.fstat(writer).st_ino == os.stat('both').st_ino)
os.pwrite(writer, b'again', 0); print(open('both').read()); os.close(writer); os.close(reader)
fd = os.open('shared', os.O_RDWR); m = mmap.mmap(fd, 0); m[0:5] = b'mappd'; m.flush(); print(open('shared').read())
one = sqlite3.connect('db'); one.execute('create table t(a)'); one.commit()
two = sqlite3.connect('db')
for n in range(20):
    (one if n % 2 else two).execute('insert into t values(?)', (n,)); one.commit(); two.commit()
print(one.execute('select count(*) from t').fetchone(), two.execute('pragma integrity_check').fetchone())
END
chmod 600 d/x; touch -d @1000 d/x; stat -c '%a %Y %h' d/x; mv d e; echo y >> e/x; cat e/x; ln e/x link; stat -c %h link
rm -r e; ls
"#;

fn overlay(base: &Path, options: &str) -> Mounted {
    sh(base, &format!("rm -rf lower upper work; {LOWER}")).ok();
    Mounted::by(|point| {
        let layers =
            format!("lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work,{options}", base.to_str().unwrap());
        run(5, Command::new("mount").args(["-t", "overlay", "-o", &layers, "overlay"]).arg(point)).ok();
    })
}

mod only_root {
    use super::*;

    #[test]
    fn a_root_on_an_overlay() {
        common::as_root(|| {
            let layers = Mounted::tmpfs("size=64m");
            for options in ["xino=off", "xino=on", "metacopy=on"] {
                let plain = overlay(&layers.path(), options);
                let expected = sh(&plain.path(), WORK).ok();
                drop(plain);
                let backing = overlay(&layers.path(), options);
                let view = Trees::new(&[]).mount(&[&backing.arg()], &[]);
                assert_eq!(sh(&view.site.view("a"), WORK).ok(), expected, "{options}");
                drop(view);
            }
        });
    }
}
