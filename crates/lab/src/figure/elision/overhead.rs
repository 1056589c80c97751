//! Cost of an uncontended pass: figures 3.10, C.3 and C.4.

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

use super::{ADAPTIVE_LEAST, ADAPTS, ElisionFigure, NO_POINTS, claim, claim_of_latches, document};
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

/// The protection of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Nothing,
    Latch(LatchKind),
    /// A transaction and nothing else, tried until it commits, because an interrupt may abort it.
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

    /// Nanoseconds of a pass over `bytes` bytes.
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
    let progress = audience.count("cost of a pass", steps, "measurements");
    let workers = Workers::new();
    let worker = workers.worker();
    let mut beside = vec![document(&[
        ["latch alone: POSIX", "+139 % over nothing"],
        ["latch alone: HLE", "+126 %"],
        ["latch alone: test-and-set", "+69 %"],
        ["latch alone: RTM", "+36 %"],
        [
            "around 1 KiB (C.3)",
            "shape: small differences; the spread is larger than the differences",
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
    let figure = ElisionFigure {
        id: "001-fig3.10",
        title: "Cost of uncontended latches and transactions",
        place: "Figures 3.10, C.3 and C.4",
        expect: "On today's processors a transaction costs more than an uncontended latch of test-and-set, and \
                 so does every elided latch. An adaptive latch costs as much as the latch it is built on. \
                 Around a thousand bytes all costs are small.",
        shape: claims(&medians),
        notes: vec![
            "One thread. The adaptive latch is elided in its trials only, one pass in hundreds."
                .to_owned(),
        ],
        beside,
        panels: Vec::new(),
    };
    Ok(figure.sheet(request))
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
            format!("nothing takes {nothing:.1} ns, tas-t {tas:.1} ns, parking {parking:.1} ns"),
            "tas-t more than nothing, parking at least 0.95 times tas-t",
            tas > nothing && parking >= tas * 0.95,
        ));
    }
    if let Some((nothing, tas, _)) = latches(around) {
        claims.push(Claim::new(
            "around a kilobyte the latch is a small part",
            format!("a kilobyte takes {nothing:.0} ns without a latch and {tas:.0} ns with tas-t"),
            "below 1.7 times",
            tas < nothing * 1.7,
        ));
    }
    let transaction = htm::rtm().map(|_| median(alone, By::Transaction));
    claims.push(claim(
        "RTM costs less than test-and-set",
        &transaction,
        "less than tas-t",
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
    claims.push(claim_of_latches(
        ADAPTS,
        adaptive,
        "at least 0.95",
        |worst| match worst {
            Some(times) => (
                format!("one thread does at worst {times:.2} adaptive passes in the time of one of parking"),
                *times >= ADAPTIVE_LEAST,
            ),
            None => (NO_POINTS.to_owned(), false),
        },
    ));
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
        note: "Nanoseconds of a pass, median and extremes of the repetitions, which took turns."
            .to_owned(),
        table,
    }
}
