//! What a pass costs that nobody else wants: figures 3.10, C.3 and C.4.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use foxton::LatchKind;
use foxton_sync::{
    htm::{self, NotAvailable},
    latch::Latched,
    site::{Component, Pattern, Site},
    worker::{Worker, Workers},
};

use super::{ADAPTIVE_LEAST, ADAPTS, Told, claim, claim_of_latches, document};
use crate::{
    bench::error::BenchError,
    figure::request::Request,
    measure::spread::Spread,
    progress::Audience,
    report::{
        findings::Block,
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
};

static SITE: Site = Site::new(Component::Latch, Pattern::Fixed, "a latch being measured");

/// How a piece of work is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Nothing,
    Latch(LatchKind),
    /// A transaction and nothing else, tried until it commits: an interrupt may abort it.
    Transaction,
}

impl By {
    fn all() -> Vec<By> {
        let latches = LatchKind::ALL.map(By::Latch);
        let first = [By::Nothing].into_iter().chain(latches);
        first.chain([By::Transaction]).collect()
    }

    fn name(self) -> String {
        match self {
            By::Nothing => "nothing".to_owned(),
            By::Latch(kind) => kind.to_string(),
            By::Transaction => "transaction alone".to_owned(),
        }
    }

    fn available(self) -> Result<(), NotAvailable> {
        match self {
            By::Nothing => Ok(()),
            By::Latch(kind) => kind.elides().map(|_| ()),
            By::Transaction => htm::rtm().map(|_| ()),
        }
    }

    /// Nanoseconds of a pass over so many bytes.
    fn nanos(self, bytes: usize, worker: &Worker, window: Duration) -> f64 {
        let data = vec![1_u8; bytes];
        let work = |data: &[u8]| {
            let sum: u64 = black_box(data).iter().map(|&byte| u64::from(byte)).sum();
            black_box(sum);
        };
        match self {
            By::Nothing => timed(window, || work(&data)),
            By::Latch(kind) => {
                let latched = Latched::new(kind, &SITE, data);
                timed(window, || latched.with(worker, |data| work(data)))
            }
            By::Transaction => {
                let Ok(rtm) = htm::rtm() else { return f64::NAN };
                timed(window, || while rtm.run(|| work(&data)).is_err() {})
            }
        }
    }
}

fn timed(window: Duration, mut pass: impl FnMut()) -> f64 {
    const BATCH: u32 = 1_000;
    (0..BATCH).for_each(|_| pass());
    let (began, mut done) = (Instant::now(), 0_u32);
    while began.elapsed() < window || done == 0 {
        (0..BATCH).for_each(|_| pass());
        done += BATCH;
    }
    began.elapsed().as_nanos() as f64 / f64::from(done)
}

/// Latches and transactions around nothing, and around a thousand bytes.
pub(in crate::figure) fn figure_10(
    request: &Request,
    audience: Audience,
) -> Result<Sheet, BenchError> {
    let window = request.each([40, 40, 500]);
    let reps = request.reps.unwrap_or(if request.full { 25 } else { 7 });
    let sizes = [0, 1_024];
    let ways = By::all();
    let here: Vec<By> = ways
        .iter()
        .copied()
        .filter(|by| by.available().is_ok())
        .collect();
    let steps = (here.len() * sizes.len()) as u64 * u64::from(reps);
    let progress = audience.count("what a pass costs", steps, "measurements");
    let workers = Workers::new();
    let worker = workers.worker();
    let mut beside = vec![document(&[
        ["lock only: POSIX", "+139 % over nothing"],
        ["lock only: HLE", "+126 %"],
        ["lock only: test-and-set", "+69 %"],
        ["lock only: RTM", "+36 %"],
        [
            "around 1 KiB (C.3)",
            "shape: small differences; the spread is larger than they are",
        ],
    ])];
    let mut medians = Vec::new();
    for bytes in sizes {
        let mut nanos = vec![Vec::new(); here.len()];
        for _ in 0..reps {
            for (by, nanos) in here.iter().zip(&mut nanos) {
                nanos.push(by.nanos(bytes, &worker, window));
                progress.advance(1);
            }
        }
        let found: Vec<(By, Spread)> = here
            .iter()
            .copied()
            .zip(nanos.into_iter().map(Spread::new))
            .collect();
        beside.push(table(bytes, &ways, &found));
        medians.push(found);
    }
    let told = Told {
        id: "001-fig3.10",
        title: "What latches and transactions cost where nobody else comes",
        place: "Figures 3.10, C.3 and C.4",
        expect: "A transaction costs more than an uncontended latch of test-and-set on today's processors, and so \
                 does every latch that is elided; one that adapts costs what the latch under it does. Around a \
                 thousand bytes all of them are small.",
        shape: claims(&medians),
        notes: vec![
            "One thread. The adaptive latch is elided in its trials only, one pass in hundreds."
                .to_owned(),
        ],
        beside,
        panels: Vec::new(),
    };
    Ok(told.sheet(request))
}

fn median(found: &[(By, Spread)], wanted: By) -> Option<f64> {
    let one = found.iter().find(|(by, _)| *by == wanted);
    one.map(|(_, nanos)| nanos.median())
}

fn claims(medians: &[Vec<(By, Spread)>]) -> Shape {
    let [alone, around] = medians else {
        return Shape::default();
    };
    let mut claims = Vec::new();
    let latches = |found: &[(By, Spread)]| {
        Some((
            median(found, By::Nothing)?,
            median(found, By::Latch(LatchKind::TasT))?,
            median(found, By::Latch(LatchKind::Parking))?,
        ))
    };
    if let Some((nothing, tas, parking)) = latches(alone) {
        claims.push(Claim::new(
            "a latch costs more than nothing does, POSIX more than test-and-set",
            format!("nothing {nothing:.1} ns, tas-t {tas:.1} ns, parking {parking:.1} ns"),
            tas > nothing && parking >= tas * 0.95,
        ));
    }
    if let Some((nothing, tas, _)) = latches(around) {
        claims.push(Claim::new(
            "around a kilobyte the latch is a small part",
            format!("nothing {nothing:.0} ns, with tas-t {tas:.0} ns"),
            tas < nothing * 1.7,
        ));
    }
    let transaction = htm::rtm().map(|_| median(alone, By::Transaction));
    claims.push(claim(
        "RTM costs less than test-and-set",
        &transaction,
        |rtm| {
            let rtm = rtm.unwrap_or(f64::INFINITY);
            let tas = median(alone, By::Latch(LatchKind::TasT)).unwrap_or(0.0);
            (
                format!("a transaction costs {rtm:.1} ns, tas-t {tas:.1} ns"),
                rtm < tas,
            )
        },
    ));
    let adaptive = || {
        let ratios = medians.iter().filter_map(|found| {
            let under = median(found, By::Latch(LatchKind::ElidedAdaptive.plain()))?;
            Some(under / median(found, By::Latch(LatchKind::ElidedAdaptive))?.max(1e-9))
        });
        ratios.min_by(f64::total_cmp)
    };
    claims.push(claim_of_latches(ADAPTS, adaptive, |worst| match worst {
        Some(times) => (
            format!("at worst {times:.2} passes in the time of one of parking, by one thread"),
            *times >= ADAPTIVE_LEAST,
        ),
        None => ("not measured".to_owned(), false),
    }));
    Shape(claims)
}

fn table(bytes: usize, ways: &[By], found: &[(By, Spread)]) -> Block {
    let mut table = Table::new(["protected by", "ns", "min", "max", "over nothing"]);
    let nothing = median(found, By::Nothing).unwrap_or(0.0);
    for &by in ways {
        let one = found.iter().find(|(other, _)| *other == by);
        match (one, by.available()) {
            (Some((_, nanos)), _) => table.row([
                by.name(),
                format!("{:.2}", nanos.median()),
                format!("{:.2}", nanos.min()),
                format!("{:.2}", nanos.max()),
                format!(
                    "{:+.0} %",
                    (nanos.median() / nothing.max(1e-9) - 1.0) * 100.0
                ),
            ]),
            (None, Err(why)) => table.row([by.name(), why.to_string()]),
            (None, Ok(())) => {}
        }
    }
    Block {
        title: match bytes {
            0 => "Around nothing".to_owned(),
            bytes => format!("Around a sum of {bytes} bytes"),
        },
        note: "Nanoseconds of a pass, median and extremes of the repetitions, taken by turns."
            .to_owned(),
        table,
    }
}
