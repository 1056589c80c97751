//! Loads that spend all their time in one part are reported as such on any machine. There is one
//! test in a process of its own, because the whole process is sampled, in proportion to its
//! processor time.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::hint::black_box;

use foxton_lab::measure::profile::{Part, Profile, Profiler};
use foxton_sync::{
    latch::{Kind, Latched},
    site::{Component, Pattern, Site},
    worker::Workers,
};

const ENOUGH: usize = 150;

static SITE: Site = Site::new(Component::Latch, Pattern::Unbounded, "a test's latch");

/// Share of this part in all samples, in the program and in the kernel.
fn part_of(profile: &Profile, part: Part) -> f64 {
    let counts = profile.to_json();
    let of = |place: &str| counts[place][part.to_string()].as_u64().expect("a count");
    (of("program") + of("kernel")) as f64 / profile.samples() as f64
}

/// The workload's own code, which this file counts as.
fn only_the_client() -> Profile {
    let profiler = Profiler::start().expect("nobody else samples here");
    let mut sum = 1u64;
    while profiler.taken() < ENOUGH {
        for step in 0..100_000u64 {
            sum = black_box(sum ^ step).wrapping_mul(3);
        }
    }
    black_box(sum);
    profiler.stop()
}

/// A latch acquired and released, over and over. A waiting thread would yield its processor, and so
/// use it the less, the busier the machine is.
fn only_latches(kind: Kind) -> Profile {
    let workers = Workers::new();
    let (worker, latch) = (workers.worker(), Latched::new(kind, &SITE, 0u64));
    let profiler = Profiler::start().expect("it was stopped before");
    while profiler.taken() < ENOUGH {
        for _ in 0..100_000 {
            latch.with(&worker, |sum| *sum = sum.wrapping_add(1));
        }
    }
    profiler.stop()
}

#[test]
fn a_load_in_one_part_is_told_as_that_part() {
    let client = only_the_client();
    assert!(part_of(&client, Part::Client) > 0.9, "{client:?}");
    // The loop around it is the client's.
    let latches = only_latches(Kind::Queue);
    assert!(part_of(&latches, Part::Latch) > 0.6, "{latches:?}");
    for profile in [client, latches] {
        let sum: f64 = Part::ALL.map(|part| part_of(&profile, part)).iter().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{profile:?}");
        assert!(profile.samples() as usize >= ENOUGH);
    }
}
