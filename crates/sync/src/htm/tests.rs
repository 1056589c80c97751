//! Tests of hardware transactions, with and without the hardware. Tests that need it return early
//! where it is missing, and fail where it is present and does otherwise.

use super::*;

/// Each bit's cause, with every other bit beside it that the processor may set.
#[test]
fn a_status_word_has_one_cause() {
    let cases = [
        (0b00_0000, Cause::Other),
        (0b00_0010, Cause::Other),
        (0b00_0100, Cause::Conflict),
        (0b00_0110, Cause::Conflict),
        (0b00_1000, Cause::Capacity),
        (0b00_1110, Cause::Capacity),
        (0b01_0000, Cause::Debug),
        (0b10_0000, Cause::Nested),
        (0b10_0110, Cause::Conflict),
        (0b10_1000, Cause::Capacity),
        (0b00_0001, Cause::Explicit),
        (0b10_1111, Cause::Explicit),
    ];
    for (status, cause) in cases {
        let abort = Abort::of_status(status);
        assert_eq!(abort.cause(), cause, "{status:#b}");
        assert_eq!(abort.may_succeed(), status & 2 != 0, "{status:#b}");
        assert_eq!(abort.was_inside_another(), status & 32 != 0, "{status:#b}");
        assert_eq!(abort.code().is_some(), status & 1 != 0, "{status:#b}");
    }
}

#[test]
fn a_made_abort_reads_back() {
    for cause in Cause::ALL {
        assert_eq!(Abort::because(cause).cause(), cause);
        let again = Abort::because(cause).that_may_succeed();
        assert_eq!((again.cause(), again.may_succeed()), (cause, true));
    }
    for code in 0..=u8::MAX {
        let abort = Abort::explicit(code).inside_another();
        assert_eq!((abort.code(), abort.cause()), (Some(code), Cause::Explicit));
        assert!(abort.was_inside_another());
    }
}

#[test]
fn the_switch_is_on_or_off_and_nothing_else() {
    let asked = |switch: &str| switched_on(Some(OsStr::new(switch)));
    assert_eq!(switched_on(None), Ok(()));
    assert_eq!(asked(""), Ok(()));
    assert_eq!(asked("on"), Ok(()));
    assert_eq!(asked("off"), Err(NotAvailable::SwitchedOff));
    for unclear in ["0", "OFF", "no", "of"] {
        assert_eq!(asked(unclear), Err(NotAvailable::SwitchNotUnderstood));
    }
}

#[test]
fn one_commit_is_enough_and_none_is_not() {
    let mut attempts = 0;
    let fourth = ever_commits(|| {
        attempts += 1;
        attempts == 4
    });
    assert_eq!((fourth, attempts), (Ok(()), 4));
    assert_eq!(ever_commits(|| false), Err(NotAvailable::AlwaysAborts));
}

#[test]
fn availability_does_not_change() {
    assert_eq!(rtm().is_ok(), rtm().is_ok());
    assert_eq!(hle().is_ok(), hle().is_ok());
    if cfg!(not(target_arch = "x86_64")) {
        assert_eq!(rtm().err(), Some(NotAvailable::Build));
    }
    if std::env::var_os(SWITCH).is_some_and(|switch| switch == "off") {
        assert_eq!(rtm().err(), Some(NotAvailable::SwitchedOff));
        assert_eq!(hle().err(), Some(NotAvailable::SwitchedOff));
    }
}

/// Tries until one commits, where nothing prevents it.
fn until_committed<R>(rtm: Rtm, mut body: impl FnMut() -> R) -> R {
    let mut attempt = || rtm.run(&mut body).ok();
    let committed = (0..1_000_000).find_map(|_| attempt());
    committed.expect("a small transaction commits now and then")
}

#[test]
fn a_transaction_is_inside_until_its_end() {
    let Ok(rtm) = rtm() else { return };
    assert!(!rtm.is_inside());
    assert!(until_committed(rtm, || rtm.is_inside()));
    assert!(!rtm.is_inside());
}

#[test]
fn an_abort_undoes_and_returns_its_code() {
    let Ok(rtm) = rtm() else { return };
    let mut written = 0u64;
    let mut codes = (0..1_000_000).map(|_| match rtm.begin() {
        Ok(transaction) => {
            written += 1;
            std::hint::black_box(&mut written);
            transaction.abort::<42>()
        }
        Err(abort) => abort.code(),
    });
    assert!(codes.any(|code| code == Some(42)));
    drop(codes);
    assert_eq!(written, 0);
}

#[test]
fn a_dropped_transaction_did_not_happen() {
    let Ok(rtm) = rtm() else { return };
    let mut written = 0u64;
    let mut codes = (0..1_000_000).map(|_| match rtm.begin() {
        Ok(_transaction) => {
            written += 1;
            std::hint::black_box(&mut written);
            None
        }
        Err(abort) => abort.code(),
    });
    assert!(codes.any(|code| code == Some(HardwareTransaction::DROPPED)));
    drop(codes);
    assert_eq!(written, 0);
}

#[test]
fn transactions_nest() {
    let Ok(rtm) = rtm() else { return };
    assert!(rtm.nesting_limit() >= 2);
}

#[test]
fn every_refusal_is_a_sentence() {
    let all = [
        NotAvailable::Build,
        NotAvailable::Processor,
        NotAvailable::AlwaysAborts,
        NotAvailable::SwitchedOff,
        NotAvailable::SwitchNotUnderstood,
    ];
    for reason in all {
        assert!(reason.to_string().starts_with("not available: "));
    }
}
