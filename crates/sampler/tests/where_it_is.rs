//! Sampling finds where the work was, and never a sleeping thread.
//!
//! One test in a process of its own, because the whole process is sampled by the processor time it
//! uses, whatever else the machine does meanwhile.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::{hint::black_box, time::Duration};

use foxton_sampler::{Unavailable, sources, start};

/// Below the rate at which any system checks its timers, so that no sample is skipped.
const PER_SECOND: u32 = 97;
const ENOUGH: usize = 50;

/// The only code that works. Never inlined, so that its name is in the stacks.
#[inline(never)]
fn toil(sum: u64) -> u64 {
    (0..10_000).fold(sum, |sum, step| black_box(sum ^ step).wrapping_mul(3))
}

#[test]
fn samples_lie_where_processor_time_was_used() {
    let sampling = start(PER_SECOND).expect("no other sampling runs here");
    assert_eq!(start(1).map(drop), Err(Unavailable::Taken));
    let mut sum = 1;
    while sampling.taken() < ENOUGH {
        sum = toil(sum);
    }
    let samples = sampling.stop();
    assert_eq!(samples.lost, 0);

    let seen = samples.stacks.len() as f64;
    assert!(samples.stacks.len() >= ENOUGH);

    let toils = |stack: &&Vec<usize>| {
        let mut functions = stack.iter().flat_map(|&address| sources(address));
        functions.any(|source| source.function.is_some_and(|name| name.contains("toil")))
    };
    let there = samples.stacks.iter().filter(toils).count() as f64;
    assert!(there / seen > 0.95, "{there} of {seen}");

    // Sampling can start again. A sleeping thread is not sampled.
    let mut more = start(PER_SECOND).expect("it was stopped");
    std::thread::sleep(Duration::from_millis(500));
    assert!(more.taken() < 5, "{} of a sleeper", more.taken());
    let before = more.taken();
    while more.taken() == before {
        sum = toil(sum);
    }
    more = match start(1) {
        Err(Unavailable::Taken) => more,
        other => panic!("{other:?}"),
    };
    assert!(!more.stop().stacks.is_empty());
    black_box(sum);
}
