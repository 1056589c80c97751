//! Faults at chosen system calls: a killed process has kept its promises, and one whose call fails
//! reports it.
//!
//! The quick form of `examples/calls.rs`, and the proof that it can fail. Both need `strace`. Where
//! there is none, or tracing is not allowed, they print that and test nothing.

use foxton_sim::{
    calls::{Aim, Blow, End, Place, Rig, aims, folder, is_possible},
    kill::Summary,
    victim::{Honesty, Orders, options},
};
use std::{fs, process::Command};

/// Runs each aim once, at its `nth` call, and returns how each ended.
fn play(name: &str, honesty: Honesty, aims: &[(Aim, u64)]) -> Option<Vec<Result<End, String>>> {
    if let Err(why) = is_possible() {
        println!("nothing is tested: {why}");
        return None;
    }
    let place = std::env::temp_dir().join(format!("foxton-{name}-{}", std::process::id()));
    let rig = Rig {
        folder: folder(Some(place.clone())).expect("the temporary folder can be written"),
        clients: 4,
        each: 12,
        honesty,
        victim: || Command::new(env!("CARGO_BIN_EXE_victim")),
    };
    let mut summary = Summary::default();
    let ends = aims.iter().map(|&(aim, nth)| {
        let end = rig.play(aim, nth, with_checkpoints(), &mut summary);
        end.map_err(|failure| failure.to_string())
    });
    let ends = ends.collect();
    println!("{summary}");
    fs::remove_dir_all(&place).expect("the folder is ours");
    Some(ends)
}

/// Returns a seed whose options make a checkpoint every few transactions.
fn with_checkpoints() -> u64 {
    let often = |&seed: &u64| options(seed).checkpoint_log_bytes == 4 << 10;
    (0..).find(often).expect("one of three is")
}

#[test]
fn killed_at_each_kind_of_call_no_acknowledged_commit_is_lost() {
    let kills = aims().into_iter().filter(|aim| aim.blow == Blow::Kill);
    let kills: Vec<(Aim, u64)> = kills.zip([1, 2].into_iter().cycle()).collect();
    let Some(ends) = play("calls-kill", Honesty::Honest, &kills) else {
        return;
    };
    let mut killed = 0;
    for ((aim, nth), end) in kills.iter().zip(ends) {
        let end = end.unwrap_or_else(|failure| panic!("{failure}"));
        println!("{aim}, call {nth}: {end:?}");
        killed += usize::from(end == End::Killed);
    }
    assert!(killed >= 9, "of {} only {killed} were killed", kills.len());
}

#[test]
fn a_call_that_fails_is_told_or_borne_and_no_acknowledged_commit_is_lost() {
    let fails = aims().into_iter().filter(|aim| {
        matches!(
            aim.blow,
            Blow::Fail {
                error: "EIO",
                ever: false
            }
        ) && ["pwrite64", "fdatasync", "fsync", "renameat"].contains(&aim.call)
    });
    let fails: Vec<(Aim, u64)> = fails.map(|aim| (aim, 2)).collect();
    let Some(ends) = play("calls-fail", Honesty::Honest, &fails) else {
        return;
    };
    let mut refused = 0;
    for ((aim, nth), end) in fails.iter().zip(ends) {
        let end = end.unwrap_or_else(|failure| panic!("{failure}"));
        println!("{aim}, call {nth}: {end:?}");
        assert_ne!(end, End::Killed);
        if (aim.call, aim.place) == ("fdatasync", Place::Log) {
            assert_eq!(end, End::Refused, "a failed sync of the log is final");
        }
        refused += usize::from(end == End::Refused);
    }
    assert!(refused >= 3, "only {refused} were refused");
}

/// A directory may have a name that is not durable: if it was made by hand, or by a process that
/// was killed right after.
#[test]
fn a_directory_has_a_durable_name_before_it_has_a_lock_whoever_made_it() {
    if let Err(why) = is_possible() {
        println!("nothing is tested: {why}");
        return;
    }
    let place = std::env::temp_dir().join(format!("foxton-calls-name-{}", std::process::id()));
    let orders = Orders {
        folder: folder(Some(place.clone())).expect("the temporary folder can be written"),
        seed: with_checkpoints(),
        clients: 1,
        each: 1,
        honesty: Honesty::Honest,
        backups: None,
        is_paged: false,
    };
    fs::create_dir(orders.database()).expect("the folder is ours");
    let notes = orders.folder.join("calls");
    for is_new in [true, false] {
        let mut command = Command::new("strace");
        command.args(["--quiet=all", "--decode-fds=path", "--trace=fsync,openat"]);
        command.arg("--output").arg(&notes).arg("--");
        command.arg(env!("CARGO_BIN_EXE_victim"));
        orders.give(&mut command);
        assert!(command.status().expect("it was possible").success());
        let notes = fs::read_to_string(&notes).expect("the calls are noted");
        let line = |words: &[&str]| {
            let all = |line: &str| words.iter().all(|word| line.contains(word));
            notes.lines().position(all)
        };
        let above = format!("<{}>", orders.folder.display());
        let named = line(&["fsync(", &above, "= 0"]);
        let locked = line(&["openat(", "\"lock\"", "O_CREAT"]).expect("it has a lock");
        match is_new {
            true => assert!(named.is_some_and(|named| named < locked), "{notes}"),
            // Once is enough.
            false => assert_eq!(named, None, "{notes}"),
        }
    }
    fs::remove_dir_all(&place).expect("the folder is ours");
}

#[test]
fn a_victim_that_lies_about_its_commits_is_found_out_at_the_first_write() {
    let aim = Aim {
        blow: Blow::Kill,
        call: "pwrite64",
        place: Place::Log,
    };
    // The header of the log and the load come first.
    let Some(ends) = play("calls-lie", Honesty::Early, &[(aim, 4)]) else {
        return;
    };
    let failure = ends[0].as_ref().expect_err("nobody noticed");
    assert!(failure.contains("I1 client"), "{failure}");
}
