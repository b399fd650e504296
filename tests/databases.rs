//! Databases in the view: what was committed is there after any death, and several processes agree about it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{Trees, View, at_work, step, work};
use rustix::process::geteuid;

/// Shell functions around `sqlite3`: `sql DB` takes statements and waits for locks instead of failing.
const SQL: &str = "sql() { sqlite3 -batch -init /dev/null -cmd '.timeout 20000' \"$1\"; }\n";

/// The programs of the server, which Debian keeps out of the way, a socket with a short path, and no server left behind.
const POSTGRES: &str = r#"
PATH=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1):$PATH
PGHOST=$(mktemp -d /tmp/rootsfs-pg-XXXXXX); PGUSER=postgres; PGDATABASE=postgres
export PATH PGHOST PGUSER PGDATABASE
stop() { pg_ctl -D pg -s -m "$1" stop; }
trap 'stop immediate >/dev/null 2>&1 || true; rm -rf "$PGHOST"' EXIT
start() { # Right after a crash the old processes may still hold the shared memory.
    for try in 1 2 3 4 5; do
        pg_ctl -D pg -s -w -l log -o "-c listen_addresses= -c unix_socket_directories=$PGHOST" start 2>/dev/null && return
        sleep 1
    done
    cat log; return 1
}
"#;

as_root_and_user! {
    fn sqlite() {
        at_work(&View::of(&["a"]), "sqlite", |s| {
            for mode in ["delete", "truncate", "persist", "wal"] {
                let sql = |script: &str| work(&s.view("a"), &format!("{SQL}{script}"));
                let db = format!("{mode}.db");
                let made = sql(&format!("sql {db} <<. \npragma journal_mode={mode}; pragma mmap_size=268435456; create table t(who, n, text); create index i on t(n);\n."));
                assert_eq!(made, format!("{mode}\n268435456\n"));

                step(format!("{mode}: two processes write, a third reads"));
                let lines = sql(&format!(
                    "for w in 1 2; do (for n in $(seq 25); do\n\
                     echo \"pragma mmap_size=268435456; begin immediate; insert into t values($w, $n, hex(randomblob(500))); insert into t values($w, -$n, ''); commit;\"; done | sql {db} >w$w 2>&1) & done\n\
                     (for n in $(seq 20); do echo 'select count(*) % 2 from t;'; done | sql {db} >r 2>&1) & wait\n\
                     grep -v 268435456 w1 w2 || true; sort -u r\n\
                     echo 'select count(*), sum(n), count(distinct who) from t; pragma integrity_check;' | sql {db}",
                ));
                assert_eq!(lines, "0\n100|0|2\nok\n", "{mode}");

                step(format!("{mode}: a writer is killed"));
                let lines = sql(&format!(
                    "n=0; while echo \"begin; insert into t values(3, $n, hex(randomblob(3000))); insert into t values(3, -$n, ''); commit; select 'done';\"; do n=$((n + 1)); done 2>/dev/null |\n\
                     sqlite3 -batch -init /dev/null -cmd '.timeout 20000' -cmd 'pragma cache_size=5' {db} >committed & sleep 1; kill -9 $!; wait $! 2>/dev/null || true\n\
                     kept=$(echo 'select count(*) / 2 from t where who = 3;' | sql {db}); said=$(grep -c done committed || true)\n\
                     test $kept -ge $said && test $kept -gt 3 && echo enough\n\
                     echo 'pragma integrity_check; select count(*) % 2, sum(n) from t;' | sql {db}",
                ));
                assert_eq!(lines, "enough\nok\n0|0\n", "{mode}");

                step(format!("{mode}: vacuum and a backup, read on the backing"));
                sql(&format!("echo \"vacuum; pragma wal_checkpoint(truncate); .backup copy.db\" | tr ';' '\\n' | sed 's/^ *//' | sed '/^[^.]/s/$/;/' | sql {db} >/dev/null"));
                let same = work(&s.native("a"), &format!("{SQL}for d in {db} copy.db; do echo 'pragma integrity_check; select count(*) > 100, sum(n) from t;' | sql $d; done; rm copy.db"));
                assert_eq!(same, "ok\n1|0\nok\n1|0\n", "{mode}");
            }
        });
    }

    fn postgresql() {
        let root = geteuid().is_root();
        let trees = if root { Trees::for_others(&["a"]) } else { Trees::new(&["a"]) };
        if root {
            // A server of PostgreSQL refuses to be root.
            work(&trees.site.native(""), "chown postgres: a");
        }
        let view = trees.mount(&["a"], if root { &["--allow-other"] } else { &[] });
        at_work(&view, "postgresql", move |s| {
            let run = |what: &str, script: &str| {
                step(what);
                let user = if root { "runuser -u postgres --" } else { "env" };
                work(&s.view("a"), &format!("{user} sh -e <<'END'\n{POSTGRES}{script}\nEND"))
            };
            run("initdb", "initdb -D pg -U postgres -A trust --data-checksums >initdb.log");
            // Whatever pgbench did, it added the same to four tables.
            let sums = "psql -XAtc 'select count(*) > 50, sum(delta) = (select sum(abalance) from pgbench_accounts), sum(delta) = (select sum(bbalance) from pgbench_branches), \
                sum(delta) = (select sum(tbalance) from pgbench_tellers) from pgbench_history'";
            let lines = run("pgbench", &format!(
                "start; pgbench -q -i -s 1 2>/dev/null; pgbench -n -T 4 -c 4 -j 2 2>&1 | grep -E 'failed|rror'; {sums}\n\
                 psql -XAtc 'create database other' -c 'vacuum full' -c 'create index on pgbench_history(delta)' >/dev/null; stop fast"
            ));
            assert_eq!(lines, "number of failed transactions: 0 (0.000%)\nt|t|t|t\n");
            let lines = run("a crash under load", &format!(
                "start; (pgbench -n -T 20 -c 4 >/dev/null 2>&1 || true) & sleep 2; kill -9 $(head -n 1 pg/postmaster.pid); wait\n\
                 start; {sums}; grep -q 'database system was not properly shut down' log && echo recovered; pg_amcheck --all --install-missing && echo indexes; stop fast; pg_checksums --check -D pg | grep Bad"
            ));
            assert_eq!(lines, "t|t|t|t\nrecovered\nindexes\nBad checksums:  0\n");
        });
    }
}
