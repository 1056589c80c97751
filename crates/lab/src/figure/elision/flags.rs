//! Flag of a latch: its width, how it is taken, how threads wait for it. Figures 2.4 to 2.7.
//!
//! Threads acquire and release one of many flags at random. Elided, they do it in a transaction
//! that reads the flag, by the document's Algorithm 1. So flags of any width can be elided, not
//! only those that prefixes support.

use std::{
    fmt,
    hint::black_box,
    time::{Duration, Instant},
};

use foxton_sync::{
    cache_line::CachePadded,
    htm::{self, Abort, NotAvailable, Rtm},
    shim::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, hint},
};

use super::{ElisionFigure, NO_POINTS, attempts::Attempts, claim, document, percent_or};
use crate::{
    bench::error::BenchError,
    figure::request::Request,
    measure::spread::Spread,
    progress::Audience,
    random::Random,
    report::{
        findings::Block,
        number::grouped,
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
    threads::together,
};

/// A word that is 0 while no thread holds it.
trait Flag: Default + Send + Sync {
    /// Writes 1; true if it was 0.
    fn exchange(&self) -> bool;
    /// Sets the lowest bit; true if it was not set.
    fn set(&self) -> bool;
    fn is_free(&self) -> bool;
    fn clear(&self);
}

macro_rules! flags {
    ($($word:ident),*) => {
        $(impl Flag for $word {
            #[inline(always)]
            fn exchange(&self) -> bool {
                self.swap(1, Ordering::Acquire) == 0
            }

            #[inline(always)]
            fn set(&self) -> bool {
                self.fetch_or(1, Ordering::Acquire) & 1 == 0
            }

            #[inline(always)]
            fn is_free(&self) -> bool {
                self.load(Ordering::Acquire) == 0
            }

            #[inline(always)]
            fn clear(&self) {
                self.store(0, Ordering::Release);
            }
        })*
    };
}

flags!(AtomicU8, AtomicU16, AtomicU32, AtomicU64);

/// How a flag is acquired, waited for and elided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Form {
    /// Bytes.
    width: u8,
    /// Acquired by exchange; otherwise by test-and-set.
    exchange: bool,
    /// Waits until the flag is free before the next attempt.
    reads: bool,
    elided: bool,
}

const USUAL: Form = Form {
    width: 4,
    exchange: true,
    reads: true,
    elided: false,
};

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let take = if self.exchange {
            "exchange"
        } else {
            "test-and-set"
        };
        let wait = if self.reads { "TAS-T" } else { "TAS" };
        let elided = if self.elided { ", elided" } else { "" };
        write!(f, "{} bytes, {take}, {wait}{elided}", self.width)
    }
}

/// A measurement over flags.
#[derive(Debug, Clone, Copy)]
struct Task {
    form: Form,
    flags: usize,
    /// Iterations of an empty loop while the flag is held.
    hold: u32,
    threads: usize,
}

impl Task {
    /// Returns the passes a millisecond of all threads, and how their transactions ended.
    fn measure(self, window: Duration) -> Result<(f64, Attempts), BenchError> {
        match self.form.width {
            1 => self.over::<AtomicU8>(window),
            2 => self.over::<AtomicU16>(window),
            8 => self.over::<AtomicU64>(window),
            _ => self.over::<AtomicU32>(window),
        }
    }

    fn over<F: Flag>(self, window: Duration) -> Result<(f64, Attempts), BenchError> {
        const BATCH: u32 = 64;
        let rtm = htm::rtm().ok().filter(|_| self.form.elided);
        let elide = rtm.map(|rtm| move |flag: &F| self.elide(flag, rtm));
        let flags: Vec<CachePadded<F>> = (0..self.flags).map(|_| CachePadded::default()).collect();
        let thread = |number: usize| {
            let (flags, elide) = (&flags, &elide);
            move || {
                let mut random = Random::seeded(&[number as u64]);
                let mut tried = Attempts::default();
                let (began, mut done) = (Instant::now(), 0_u64);
                while began.elapsed() < window {
                    for _ in 0..BATCH {
                        let at = random.bits() as usize % flags.len();
                        self.pass(&*flags[at], elide.as_ref(), &mut tried);
                    }
                    done += u64::from(BATCH);
                }
                let rate = done as f64 / began.elapsed().as_secs_f64() / 1_000.0;
                (rate, tried)
            }
        };
        let bodies: Vec<_> = (0..self.threads).map(thread).collect();
        let (found, ()) = together(bodies, || ())?;
        if flags.iter().any(|flag| !flag.is_free()) {
            return Err(BenchError::Failed("a flag was not released".to_owned()));
        }
        let mut sum = (0.0, Attempts::default());
        for (rate, tried) in &found {
            sum.0 += rate;
            sum.1.add(tried);
        }
        Ok(sum)
    }

    fn hold(self) {
        for turn in 0..self.hold {
            black_box(turn);
        }
    }

    /// Passes in a transaction, if it commits and the flag is free. An aborted attempt has no
    /// effect.
    #[inline(always)]
    fn elide<F: Flag>(self, flag: &F, rtm: Rtm) -> Result<(), Abort> {
        let transaction = rtm.begin()?;
        if !flag.is_free() {
            transaction.abort::<1>();
        }
        self.hold();
        transaction.commit();
        Ok(())
    }

    /// Passes by `elide` if there is one and it succeeds, otherwise by acquiring the flag; tries
    /// again if the flag was taken meanwhile.
    #[inline(always)]
    fn pass<F: Flag>(
        self,
        flag: &F,
        elide: Option<&impl Fn(&F) -> Result<(), Abort>>,
        tried: &mut Attempts,
    ) {
        let take = || match self.form.exchange {
            true => flag.exchange(),
            false => flag.set(),
        };
        loop {
            if let Some(elide) = elide {
                let ended = elide(flag);
                tried.count(ended);
                if ended.is_ok() {
                    return;
                }
            }
            if take() {
                self.hold();
                flag.clear();
                return;
            }
            // With more threads than processors, the holder may not be running.
            let mut turns = 0_u32;
            loop {
                hint::spin_loop();
                turns += 1;
                if turns.is_multiple_of(256) {
                    std::thread::yield_now();
                }
                if !self.form.reads || flag.is_free() {
                    break;
                }
            }
        }
    }
}

/// The tasks of one table, all over the same flags.
struct Compared {
    title: &'static str,
    tasks: Vec<Task>,
}

fn compared(threads: usize, full: bool) -> Vec<Compared> {
    let both = |form: Form| {
        [
            form,
            Form {
                elided: true,
                ..form
            },
        ]
    };
    let task = |form, flags, hold| Task {
        form,
        flags,
        hold,
        threads,
    };
    let counts: &[usize] = if full {
        &[1, 10, 20, 40, 60, 80, 100]
    } else {
        &[1, 10, 100]
    };
    let widths = [1, 2, 4, 8].map(|width| Form { width, ..USUAL });
    let widths: Vec<Form> = widths.into_iter().flat_map(both).collect();
    let by_width = counts
        .iter()
        .flat_map(|&flags| widths.iter().map(move |&form| task(form, flags, 0)));
    let waits = [false, true].map(|reads| Form { reads, ..USUAL });
    let waits: Vec<Form> = waits.into_iter().flat_map(both).collect();
    let takes = [false, true].map(|exchange| Form { exchange, ..USUAL });
    let takes: Vec<Form> = takes.into_iter().flat_map(both).collect();
    vec![
        Compared {
            title: "Width (2.4)",
            tasks: by_width.collect(),
        },
        Compared {
            title: "TAS and TAS-T, released at once, of 100 flags (2.5)",
            tasks: waits.iter().map(|&form| task(form, 100, 0)).collect(),
        },
        Compared {
            title: "TAS and TAS-T, held for a while, one flag (2.6)",
            tasks: waits.iter().map(|&form| task(form, 1, 2_000)).collect(),
        },
        Compared {
            title: "Test-and-set and exchange, of 100 flags (2.7)",
            tasks: takes.iter().map(|&form| task(form, 100, 0)).collect(),
        },
    ]
}

/// Width, waiting and taking.
pub(in crate::figure) fn figure_4(
    request: &Request,
    audience: Audience,
) -> Result<Sheet, BenchError> {
    let window = request.each([20, 20, 500]);
    let reps = request.reps.unwrap_or(if request.full { 20 } else { 5 });
    let all = compared(4, request.full);
    let available = htm::rtm().map(|_| ());
    let runs = |task: &Task| available.is_ok() || !task.form.elided;
    let steps: usize = all
        .iter()
        .map(|one| one.tasks.iter().filter(|task| runs(task)).count())
        .sum();
    let progress = audience.count("flags", steps as u64 * u64::from(reps), "measurements");
    let mut beside = vec![document(&[
        [
            "width (2.4)",
            "4 bytes fastest; 54 % of cycles transactional, others 22 to 24 %",
        ],
        ["TAS and TAS-T, released at once (2.5)", "no difference"],
        [
            "the same, held for a while (2.6)",
            "TAS-T wins: 12.15 % of its transactions abort, 99.99 % of TAS's",
        ],
        ["test-and-set and exchange (2.7)", "no difference"],
    ])];
    let mut found = Vec::new();
    for one in &all {
        let mut rates = vec![Vec::new(); one.tasks.len()];
        let mut tried = vec![Attempts::default(); one.tasks.len()];
        for _ in 0..reps {
            for (task, (rates, tried)) in one.tasks.iter().zip(rates.iter_mut().zip(&mut tried)) {
                if runs(task) {
                    let (rate, ends) = task.measure(window)?;
                    rates.push(rate);
                    tried.add(&ends);
                    progress.advance(1);
                }
            }
        }
        let each = one.tasks.iter().zip(rates).zip(tried);
        let each = each.map(|((task, rates), tried)| Measured {
            task: *task,
            rate: Spread::new(rates),
            tried,
        });
        let each: Vec<Measured> = each.collect();
        beside.push(table(one.title, &each, available));
        found.push(each);
    }
    let figure = ElisionFigure {
        id: "001-fig2.4",
        title: "The flag of a latch: width, waiting, taking",
        place: "Figures 2.4 to 2.7, section 2.4",
        expect: "Width and instruction make no difference on today's processors. Waiting until the flag is \
                 free before the next attempt helps if it is held for long.",
        shape: claims(&found, available),
        notes: vec!["Four threads. A thread yields its processor after spinning 256 times: with fewer cores than \
                     threads, the holder may not be running. Flags are elided by hardware transactions or not \
                     at all; software emulates none here."
            .to_owned()],
        beside,
        panels: Vec::new(),
    };
    Ok(figure.sheet(request))
}

/// Result of one task.
struct Measured {
    task: Task,
    /// Passes a millisecond, by repetition.
    rate: Spread,
    /// Transactions of all repetitions.
    tried: Attempts,
}

fn claims(found: &[Vec<Measured>], available: Result<(), NotAvailable>) -> Shape {
    let measured = |table: usize, wanted: Form| {
        let mut all = found.get(table)?.iter();
        all.find(|one| one.task.form == wanted && (table > 0 || one.task.flags == 10))
    };
    let of = |table: usize, wanted: Form| Some(measured(table, wanted)?.rate.median());
    let compare = |says: &str,
                   ratio: Option<f64>,
                   [one, other]: [&str; 2],
                   bound: &str,
                   holds: fn(f64) -> bool| {
        let ratio = ratio?;
        let found = format!("{one} does {ratio:.2} times as many passes as {other}");
        Some(Claim::new(says, found, bound, holds(ratio)))
    };
    let ratio = |table, one, other| Some(of(table, one)? / of(table, other)?.max(1e-9));
    let tas = Form {
        reads: false,
        ..USUAL
    };
    let set = Form {
        exchange: false,
        ..USUAL
    };
    let byte = Form { width: 1, ..USUAL };
    let all = [
        compare(
            "flags of four bytes are the fastest",
            ratio(0, USUAL, byte),
            ["a flag of four bytes", "one of one byte"],
            "more than 1.1 times",
            |r| r > 1.1,
        ),
        compare(
            "released at once, TAS and TAS-T are alike",
            ratio(1, USUAL, tas),
            ["released at once, TAS-T", "TAS"],
            "0.8 to 1.25 times",
            |r| (0.8..1.25).contains(&r),
        ),
        compare(
            "held for a while, TAS-T wins",
            ratio(2, USUAL, tas),
            ["held for a while, TAS-T", "TAS"],
            "more than 1 times",
            |r| r > 1.0,
        ),
        compare(
            "exchange and test-and-set are alike",
            ratio(3, USUAL, set),
            ["exchange", "test-and-set"],
            "0.8 to 1.25 times",
            |r| (0.8..1.25).contains(&r),
        ),
    ];
    let mut all: Vec<Claim> = all.into_iter().flatten().collect();
    let aborts = available.map(|()| {
        let share = |form: Form| {
            let elided = Form {
                elided: true,
                ..form
            };
            measured(2, elided).map(|one| one.tried.share())
        };
        share(USUAL).zip(share(tas))
    });
    all.push(claim(
        "held for a while, fewer transactions of TAS-T abort than of TAS",
        &aborts,
        "less with TAS-T",
        |shares| match shares {
            Some((waits, does_not)) => (
                format!(
                    "{:.2} % of TAS-T's transactions abort and {:.2} % of TAS's",
                    waits * 100.0,
                    does_not * 100.0
                ),
                waits < does_not,
            ),
            None => (NO_POINTS.to_owned(), false),
        },
    ));
    Shape(all)
}

fn table(title: &str, found: &[Measured], available: Result<(), NotAvailable>) -> Block {
    let heads = [
        "flag",
        "flags",
        "passes/ms",
        "min",
        "max",
        "aborted",
        "causes",
    ];
    let mut table = Table::new(heads);
    for Measured { task, rate, tried } in found {
        let mut row = vec![task.form.to_string(), task.flags.to_string()];
        match available {
            Err(why) if task.form.elided => row.push(why.to_string()),
            _ => row.extend([rate.median(), rate.min(), rate.max()].map(grouped)),
        }
        if task.form.elided && available.is_ok() {
            row.extend([percent_or(Ok(tried.share())), tried.causes()]);
        }
        table.row(row);
    }
    Block {
        title: title.to_owned(),
        note: "Median and extremes of the repetitions, which took turns; all threads together. Aborted is a \
               share of the transactions begun, with their number by cause; explicit means that the flag \
               was taken."
            .to_owned(),
        table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxton_sync::htm::Cause;
    use std::{cell::RefCell, collections::VecDeque};

    /// The attempts end by script, because the processor may have no transactions. An aborted
    /// attempt is counted by its cause, and the flag is taken instead.
    #[test]
    fn attempts_are_counted_by_their_end() {
        let conflict = Err(Abort::because(Cause::Conflict));
        let capacity = Err(Abort::because(Cause::Capacity));
        let script = RefCell::new(VecDeque::from([
            conflict,
            Ok(()),
            capacity,
            conflict,
            Ok(()),
        ]));
        let elide = |_: &AtomicU32| script.borrow_mut().pop_front().expect("one for each pass");
        let task = Task {
            form: USUAL,
            flags: 1,
            hold: 0,
            threads: 1,
        };
        let (flag, mut tried) = (AtomicU32::default(), Attempts::default());
        for _ in 0..5 {
            task.pass(&flag, Some(&elide), &mut tried);
            assert!(flag.is_free());
        }
        assert_eq!(tried.causes(), "conflict 2, capacity 1");
        assert!((tried.share() - 0.6).abs() < 1e-9, "{tried:?}");
        task.pass(
            &flag,
            None::<&fn(&AtomicU32) -> Result<(), Abort>>,
            &mut tried,
        );
        assert_eq!(tried.causes(), "conflict 2, capacity 1");
    }
}
