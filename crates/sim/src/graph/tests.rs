//! Each anomaly of the literature in the smallest history that has it, and similar histories
//! without it.

use super::*;
use crate::history::sketch::history;

fn names(text: &str) -> Vec<String> {
    check(&history(text)).names()
}

/// Returns the report of the only anomaly of a history.
fn only(name: &str, text: &str) -> String {
    let findings = check(&history(text));
    assert_eq!(findings.names(), [name], "{text}\n{findings}");
    findings.to_string()
}

#[test]
fn a_serial_history_is_clean() {
    let clean = "start 1 5
        A@1 0..1: get 1=S; put 1; insert 3; scan 0..9 1=A 3=A 5=S
        X@x 0..9: get 1=A; put 1; delete 5; put 7
        B@2 2..3: get 1=A; delete 3; get 3=-; insert 3; delete! 8
        C@2 4..5: scan 0..9 1=A 3=B 5=S; get 7=-
        D@5 4..9: delete 5; scan 0..9 desc limit=2 3=B 1=A";
    let findings = check(&history(clean));
    assert!(findings.anomalies.is_empty(), "{findings}");
    assert_eq!(findings.transactions, 4);
    assert!(findings.dependencies > 3, "{findings}");
}

#[test]
fn g0_writes_of_two_are_mixed() {
    let story = only(
        "G0",
        "start 1 2\nA@1: put 1; put 2\nB@2: put 1; put 2\norder 1 A B\norder 2 B A",
    );
    assert!(story.contains("T2 overwrote that"), "{story}");
    // In one order they are not mixed.
    assert!(names("start 1 2\nA@1: put 1; put 2\nB@2: put 1; put 2").is_empty());
}

#[test]
fn g1a_something_was_read_that_was_rolled_back() {
    only("G1a", "start 1\nA@x: put 1\nB@1: get 1=A");
    only("G1a", "start 1\nA@x: put 1\nB@1: scan 0..9 1=A");
    // Or a key is missing that a transaction deleted and then rolled back.
    let story = only("G1a", "start 1\nA@x: delete 1\nB@1: scan 0..9");
    assert!(story.contains("delete 1"), "{story}");
    // Or a value was never written.
    only("G1a", "start 1\nB@1: get 1=D.7");
}

#[test]
fn g1b_something_was_read_that_its_writer_overwrote() {
    only("G1b", "start 1\nA@1: put 1; put 1\nB@2: get 1=A.0");
    assert!(names("start 1\nA@1: put 1; put 1\nB@2: get 1=A").is_empty());
}

#[test]
fn g1c_information_flows_in_a_circle() {
    let story = only("G1c", "start 1 2\nA@1: put 1; get 2=B\nB@2: put 2; get 1=A");
    assert!(story.contains("read that in step 1"), "{story}");
    only(
        "G1c",
        "start 1 2\nA@1: put 1; put 2\nB@2: put 1; get 3=C\nC@3: put 3; get 2=A\norder 1 B A",
    );
}

#[test]
fn g_si_a_snapshot_shows_the_commits_up_to_its_place_and_no_other() {
    let after = |steps: &str| names(&format!("start 1 2\nA@3: put 1; delete 2\n{steps}"));
    assert!(after("B@3/3: get 1=A snap; get 2=- snap; scan 0..9 1=A snap").is_empty());
    assert!(after("B@2/2: get 1=S snap; get 2=S snap; scan 0..9 1=S 2=S snap").is_empty());
    assert_eq!(after("B@2/2: get 1=A snap"), ["G-SIa"]);
    assert_eq!(after("B@3/3: get 1=S snap"), ["G-SIb"]);
    assert_eq!(after("B@2/2: get 2=- snap"), ["G-SIb"]);
    assert_eq!(
        after("B@3/3: scan 0..9 1=A 2=S snap"),
        ["G-SIb", "G-single"]
    );
    // A writer overwrites nothing that is younger than its snapshot.
    assert_eq!(after("B@4/2: get 7=- snap; put 1"), ["G-SIa"]);
    assert!(after("B@4/3: get 7=- snap; put 1").is_empty());
}

#[test]
fn write_skew_at_snapshots_breaks_no_promise() {
    let skew = "start 1 2\nA@1/0: get 2=S snap; put 1\nB@2/0: get 1=S snap; put 2";
    assert_eq!(names(skew), ["G2-item"]);
    assert!(check_promised(&history(skew)).anomalies.is_empty());
    // One that only reads is as serializable as the others.
    let fekete = "start 1 2\nA@9: get 2=S; put 1\nB@5: put 2\nC@6/6: get 1=S snap; get 2=B snap";
    let found = check_promised(&history(fekete));
    assert_eq!(found.names(), ["G2-item"], "{found}");
    let allowed = fekete.replace("A@9: get 2=S", "A@9/0: get 2=S snap");
    assert!(check_promised(&history(&allowed)).anomalies.is_empty());
}

#[test]
fn otv_an_observed_transaction_vanishes() {
    only("OTV", "start 1 2\nA@1: put 1; put 2\nB@2: get 1=A; get 2=S");
    only(
        "OTV",
        "start 1\nA@1: put 1; insert 4\nB@2: get 1=A; scan 3..5",
    );
}

#[test]
fn p4_an_update_is_lost() {
    let story = only("P4", "start 1\nA@1: get 1=S; put 1\nB@2: get 1=S; put 1");
    assert!(story.contains("T1 read key 1 in step 0") || story.contains("T2 read key 1 in step 0"));
    only("P4", "start 1\nA@1: insert 7\nB@2: insert 7");
}

#[test]
fn pmp_two_predicates_belong_to_different_moments() {
    only(
        "PMP",
        "start 1\nA@1: insert 4; insert 5\nB@2: scan 4..4; scan 5..5 5=A",
    );
}

#[test]
fn g_single_half_of_a_transaction_is_seen() {
    only(
        "G-single",
        "start 1 2\nA@1: put 1; put 2\nB@2: get 1=S; get 2=A",
    );
    // By way of other transactions, too.
    only(
        "G-single",
        "start 1 2\nA@1: put 1; put 3\nC@2: get 3=A; put 2\nB@3: get 1=S; get 2=C",
    );
}

#[test]
fn g2_item_two_did_not_see_each_others_writes() {
    let skew = "start 1 2\nA@1: get 1=S; get 2=S; put 1\nB@2: get 1=S; get 2=S; put 2";
    let story = only("G2-item", skew);
    assert!(story.starts_with("2 transactions, "), "{story}");
    assert!(story.contains("\nG2-item, "), "{story}");
    // Absent keys that are read singly are items.
    only(
        "G2-item",
        "start 1\nA@1: get 7=-; insert 8\nB@2: get 8=-; insert 7",
    );
    let three = "start 1 2 3
        A@1: get 1=S; put 2
        B@2: get 2=S; put 3
        C@3: get 3=S; put 1";
    only("G2-item", three);
}

#[test]
fn g2_something_appeared_in_a_range() {
    let story = only(
        "G2",
        "start 1\nA@1: scan 2..9; insert 3\nB@2: scan 2..9; insert 4",
    );
    assert!(story.contains("read without key"), "{story}");
    // A reader that wrote nothing can show it.
    only(
        "G2",
        "start 1
        A@3: scan 0..9 1=S; put 1
        B@1: insert 5
        C@2: scan 0..9 1=S 5=B",
    );
}

#[test]
fn a_limit_ends_what_was_read() {
    // Beyond the last row of a limited scan nothing was read, upwards or downwards.
    let up = "start 1 5\nA@1: scan 0..9 limit=1 1=S; insert 3\nB@2: get 3=-; insert 6";
    assert!(names(up).is_empty());
    let down = "start 1 5\nA@1: scan 0..9 desc limit=1 5=S; insert 6\nB@2: get 6=-; insert 3";
    assert!(names(down).is_empty());
    only(
        "G2",
        "start 1 5\nA@1: scan 0..9 limit=2 1=S 5=S; insert 6\nB@2: get 6=-; insert 3",
    );
}

#[test]
fn a_transaction_sees_its_own_writes() {
    only("internal", "start 1\nA@1: put 1; get 1=S");
    only("internal", "start 1\nA@1: delete 1; scan 0..9 1=S");
    only("internal", "start 1\nA@1: insert 4; scan 0..9 1=S");
}

#[test]
fn a_history_that_is_wrong_only_by_the_clock_is_real_time() {
    let stale = "start 1\nA@2 0..1: put 1\nB@1 5..9: get 1=S";
    let story = only("G-single-realtime", stale);
    assert!(story.contains("was acknowledged before"), "{story}");
    assert!(names("start 1\nA@2 0..6: put 1\nB@1 5..9: get 1=S").is_empty());
    // By way of a third transaction that concerns neither.
    only(
        "G-single-realtime",
        "start 1\nA@2 0..1: put 1\nC@9 2..3: get 8=-\nB@1 5..9: get 1=S",
    );
}

#[test]
fn a_key_absent_more_than_once_gives_the_least_dependencies_that_explain_it() {
    let twice = "start 1
        A@1 0..1: delete 1
        B@2 2..3: insert 1
        C@3 4..5: delete 1
        D@4 6..7: get 1=-";
    assert!(names(twice).is_empty());
}

#[test]
fn a_large_history_is_looked_at_in_no_time() {
    let mut text = "start 1 2 3\n".to_owned();
    // Clients are letters here, so a large history has few transactions with many steps.
    for (place, name) in (1..).zip('A'..='O') {
        let before = if place == 1 {
            'S'
        } else {
            char::from(name as u8 - 1)
        };
        let gets = format!("get 1={before}; ").repeat(300);
        text += &format!("{name}@{place}: {gets}put 1\n");
    }
    let start = std::time::Instant::now();
    assert!(names(&text).is_empty());
    assert!(start.elapsed().as_secs() < 10);
}

#[test]
fn a_row_that_comes_into_a_range_of_an_index_appears() {
    let story = only(
        "G2",
        "start 1g1 2g9
        A@1: groups 4..6; put 2g5
        B@2: groups 4..6; put 1g5",
    );
    assert!(story.contains("T2 wrote it"), "{story}");
    only(
        "PMP",
        "start 1g1 2g9\nA@1: put 1g5; put 2g6\nB@2: groups 5..5; groups 6..6 2=A",
    );
    // A name that is asked for singly is an item, and so is one that a write wants.
    only(
        "G2-item",
        "start 1 2\nA@1: name 7=-; put 1n8\nB@2: name 8=-; put 2n7",
    );
    only("P4", "start 1\nA@1: insert 3n7\nB@2: insert 3n7");
    only(
        "G2-item",
        "start 1 2 3n7\nA@1: name 7=-; get 1=S; put 2\nB@2: put 1; get 2=S\nC@3 0..1: delete 3",
    );
}

#[test]
fn a_row_that_moves_inside_a_range_changes_nothing_for_it() {
    let within = "start 1g4 2g9
        A@1: groups 3..6 1=S; put 2g8
        B@2: get 2=S; put 1g5";
    // It was read, too.
    only("G2-item", within);
    let outside = "start 1g4 2g9\nA@1: groups 5..6; put 2g8\nB@2: get 2=S; put 1g7";
    assert!(names(outside).is_empty());
    // The row left, was gone for two transactions, and came back.
    let back = "start 1g4
        A@1 0..1: put 1g7
        B@2 2..3: put 1g8
        C@3 4..20: groups 3..5
        D@4 5..19: put 1g3";
    assert!(names(back).is_empty());
}

#[test]
fn a_limit_ends_what_was_read_of_an_index_at_a_row() {
    let past = "start 1g5 3g5\nA@1: groups 0..9 limit=1 1=S; put 3g7\nB@2: get 3=S; insert 2g5";
    assert!(names(past).is_empty());
    let before = "start 3g5 4g7\nA@1: groups 0..9 limit=1 3=S; put 4g8\nB@2: get 4=S; insert 2g5";
    only("G2", before);
}

#[test]
fn an_undone_write_was_never_written() {
    assert!(names("start 1\nA@1: save; put 1; back 0; get 1=S\nB@2: get 1=S").is_empty());
    only(
        "G1b",
        "start 1\nA@1: put 2; save; put 1; put 2; back 0\nB@2: get 2=A.3",
    );
    only(
        "internal",
        "start 1\nA@1: save; put 1; back 0; put 2; get 2=S",
    );
    only("internal", "start 1g1\nA@1: put 1g4; groups 3..5");
    only(
        "internal",
        "start 1g4\nA@1: save; put 1g9; release 0; groups 3..5 1=S",
    );
}

#[test]
fn of_each_transaction_what_it_was_promised_counts() {
    let promised = |text: &str| check_promised(&history(text)).names();
    let skews = [
        (
            "rows",
            "start 1 2\nA@1: get 1=S KEPT; put 2\nB@2: get 2=S KEPT; put 1",
        ),
        (
            "range",
            "start\nA@1: scan 0..9 KEPT; insert 3\nB@2: scan 0..9 KEPT; insert 4",
        ),
        ("brief", "start 1\nA@x: put 1\nB@1: get 1=A KEPT"),
        (
            "brief",
            "start 1 2\nA@1: put 1; get 2=B KEPT\nB@2: put 2; get 1=A KEPT",
        ),
    ];
    let kept = ["dirty", "brief", "rows", "range"];
    for (least, skew) in skews {
        let least = kept.iter().position(|each| *each == least).unwrap();
        for (at, each) in kept.into_iter().enumerate() {
            let word = if each == "range" { "" } else { each };
            let text = skew.replace("KEPT", word);
            assert_eq!(promised(&text).is_empty(), at < least, "{text}");
        }
    }
    // Mixed writes are wrong at every level.
    assert_eq!(
        promised("start 1 2\nA@1: put 1; put 2\nB@2: put 1; put 2\norder 1 A B\norder 2 B A"),
        ["G0"]
    );
}
