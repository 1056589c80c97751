//! Size and alignment of transactions: figures 3.1, 3.2, 3.5 and 3.6, Table 3.2.

use foxton_sync::htm::{self, NotAvailable};

use super::{
    ElisionFigure, attempts::Attempts, availability, cache::Cache, claim, document, percent_or,
};
use crate::{
    bench::error::BenchError,
    figure::request::Request,
    progress::Audience,
    report::{findings::Block, shape::Shape, sheet::Sheet, table::Table},
};

/// The cache assumed if the system reports none: the document's.
const DOCUMENT: Cache = Cache {
    bytes: 32 << 10,
    line: 64,
    ways: 8,
};

/// Times that each transaction is tried.
fn attempts(request: &Request) -> u32 {
    match (request.full, request.window) {
        (true, _) => 10_000,
        // In the smallest form.
        (false, Some(_)) => 20,
        (false, None) => 500,
    }
}

/// The access of a transaction to every `step`th byte of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Write,
    Read,
}

impl Access {
    fn all(self, bytes: &mut [u8], step: usize) {
        match self {
            Access::Write => {
                for byte in bytes.iter_mut().step_by(step) {
                    *byte = std::hint::black_box(1);
                }
            }
            Access::Read => {
                for byte in bytes.iter().step_by(step) {
                    std::hint::black_box(byte);
                }
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Access::Write => "write",
            Access::Read => "read",
        }
    }
}

/// Tries transactions over arrays of `length` bytes whose pages are present, or are not.
fn tried(
    access: Access,
    length: usize,
    present: bool,
    attempts: u32,
) -> Result<Attempts, NotAvailable> {
    let rtm = htm::rtm()?;
    if present {
        let mut bytes = vec![1; length];
        return Ok(Attempts::times(rtm, attempts, || access.all(&mut bytes, 1)));
    }
    let mut sum = Attempts::default();
    untouched(length, attempts, |bytes| {
        sum.add(&Attempts::times(rtm, 1, || access.all(bytes, 1)));
    });
    Ok(sum)
}

/// Allocators request memory of this size from the system and return it to the system, which
/// provides each page at its first touch; an allocator does not keep so much for reuse.
const FROM_THE_SYSTEM: usize = 64 << 20;
const PAGE: usize = 4_096;

/// Calls `each` with up to `times` arrays of `length` bytes whose pages are not present; no two
/// share a page.
fn untouched(length: usize, times: u32, mut each: impl FnMut(&mut [u8])) -> u32 {
    let apart = length.next_multiple_of(PAGE);
    let mut all = vec![0_u8; FROM_THE_SYSTEM];
    let first = all.as_ptr().align_offset(PAGE).min(PAGE);
    let mut called = 0;
    for bytes in all[first..].chunks_exact_mut(apart).take(times as usize) {
        each(&mut bytes[..length]);
        called += 1;
    }
    called
}

/// Size of the data written and of the data read.
pub(in crate::figure) fn figure_1(
    request: &Request,
    _audience: Audience,
) -> Result<Sheet, BenchError> {
    let (cache, attempts) = (Cache::here(), attempts(request));
    let unit = cache.unwrap_or(DOCUMENT).bytes;
    // Eighths of the first cache, then multiples of it.
    let sizes =
        [1, 2, 4, 6, 7, 8, 9, 10, 12, 16, 32, 64, 128, 256].map(|eighths| unit / 8 * eighths);
    let mut table = Table::new([
        "access",
        "KiB",
        "of the first cache",
        "expected",
        "aborted, pages present",
        "causes",
        "aborted, pages not present",
    ]);
    let mut fits: Result<Vec<(Access, f64, f64)>, NotAvailable> = Ok(Vec::new());
    for access in [Access::Write, Access::Read] {
        for bytes in sizes {
            let present = tried(access, bytes as usize, true, attempts);
            let fresh = tried(access, bytes as usize, false, attempts / 10 + 1);
            let share = bytes as f64 / unit as f64;
            let expected = match (access, cache) {
                (_, None) => "the system does not report the cache",
                (Access::Write, _) if bytes > unit => "aborts",
                (Access::Read, _) if bytes > unit => "may commit",
                // Other writes of the transaction, first those to the stack, need space too.
                _ if bytes * 8 > unit * 7 => "at the limit",
                _ => "commits",
            };
            table.row([
                access.name().to_owned(),
                (bytes >> 10).to_string(),
                format!("{share:.2}"),
                expected.to_owned(),
                percent_or(present.as_ref().map(Attempts::share)),
                present.as_ref().map_or("-".to_owned(), Attempts::causes),
                percent_or(fresh.as_ref().map(Attempts::share)),
            ]);
            match (&mut fits, present) {
                (Ok(all), Ok(tried)) => all.push((access, share, tried.share())),
                (fits, Err(why)) => *fits = Err(why),
                _ => {}
            }
        }
    }
    let worst = |wanted: Access, over: bool, all: &[(Access, f64, f64)]| {
        let of = all.iter().filter(|(access, share, _)| {
            *access == wanted && (if over { *share > 1.0 } else { *share <= 0.5 })
        });
        of.map(|(.., aborted)| *aborted).collect::<Vec<f64>>()
    };
    let least = |all: &[f64]| all.iter().copied().fold(1.0, f64::min);
    let most = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let shape = Shape(vec![
        claim(
            "writes that exceed the first cache always abort",
            &fits,
            "over 99 %",
            |all| {
                let least = least(&worst(Access::Write, true, all));
                let words = format!(
                    "at least {:.1} % of writes larger than the cache abort",
                    least * 100.0
                );
                (words, least > 0.99)
            },
        ),
        claim(
            "writes of at most half of it nearly always commit",
            &fits,
            "below 20 %",
            |all| {
                let most = most(&worst(Access::Write, false, all));
                let words = format!(
                    "at most {:.1} % of writes up to half of the cache abort",
                    most * 100.0
                );
                (words, most < 0.2)
            },
        ),
        claim("reads can exceed it", &fits, "below 99 % at best", |all| {
            let least = least(&worst(Access::Read, true, all));
            let words = format!(
                "at best {:.1} % of reads larger than the cache abort",
                least * 100.0
            );
            (words, least < 0.99)
        }),
    ]);
    let figure = ElisionFigure {
        id: "001-fig3.1",
        title: "How much a transaction can write and read",
        place: "Figures 3.1 and 3.2",
        expect: "A transaction's writes stay in the first cache until it ends, so they cannot exceed the cache. \
                 Its reads may be tracked in larger caches. A page that is not present aborts the \
                 transaction.",
        shape,
        notes: notes(cache, attempts),
        beside: vec![
            document(&[
                ["written, 32 KiB and more", "always aborts"],
                [
                    "written, pages not present",
                    "aborts more often: each page is a fault",
                ],
                [
                    "read, more than 32 KiB",
                    "commits now and then, up to 1 MiB; in other runs never",
                ],
            ]),
            Block {
                title: "Bytes accessed one after the other".to_owned(),
                note: "The expectation follows from the size of the first data cache alone."
                    .to_owned(),
                table,
            },
        ],
        panels: Vec::new(),
    };
    Ok(figure.sheet(request))
}

/// Notes: the first cache, the number of attempts, and whether there are transactions.
fn notes(cache: Option<Cache>, attempts: u32) -> Vec<String> {
    let geometry = cache.map_or_else(
        || "The system does not report its caches.".to_owned(),
        |cache| cache.sentence() + ".",
    );
    let tried = format!(
        "{attempts} attempts each; transactions: {}.",
        availability()
    );
    vec![geometry, tried]
}

/// Lines that fit at every stride: as many of one set as it has ways.
pub(in crate::figure) fn figure_5(
    request: &Request,
    _audience: Audience,
) -> Result<Sheet, BenchError> {
    let (cache, attempts) = (Cache::here(), attempts(request));
    let geometry_used = cache.unwrap_or(DOCUMENT);
    let mut table = Table::new([
        "every nth line",
        "sets, document",
        "sets here",
        "lines expected to fit",
        "one array",
        "line by line",
    ]);
    let mut found: Result<Vec<(u64, u64)>, NotAvailable> = Ok(Vec::new());
    for step in 1..=9_u64 {
        let array = most_lines(geometry_used, step, true, attempts);
        let alone = most_lines(geometry_used, step, false, attempts);
        let words = |fit: &Result<u64, NotAvailable>| match fit {
            Ok(lines) => lines.to_string(),
            Err(_) => "not available".to_owned(),
        };
        table.row([
            step.to_string(),
            DOCUMENT.sets_by(step).to_string(),
            cache.map_or("-".to_owned(), |cache| cache.sets_by(step).to_string()),
            cache.map_or("-".to_owned(), |cache| cache.lines_by(step).to_string()),
            words(&array),
            words(&alone),
        ]);
        match (&mut found, array) {
            (Ok(all), Ok(lines)) => all.push((step, lines)),
            (found, Err(why)) => *found = Err(why),
            _ => {}
        }
    }
    let lines = |all: &[(u64, u64)], step: u64| {
        let found = all.iter().find(|(other, _)| *other == step);
        found.map_or(0, |(_, lines)| *lines)
    };
    let shape = Shape(vec![
        claim(
            "every second line: half as many fit",
            &found,
            "0.35 to 0.75 of all",
            |all| {
                let (one, two) = (lines(all, 1), lines(all, 2));
                let ratio = two as f64 / one.max(1) as f64;
                (
                    format!("{two} lines fit of every second and {one} of all"),
                    (0.35..0.75).contains(&ratio),
                )
            },
        ),
        claim(
            "every fourth: a quarter",
            &found,
            "0.15 to 0.4 of all",
            |all| {
                let (one, four) = (lines(all, 1), lines(all, 4));
                let ratio = four as f64 / one.max(1) as f64;
                (
                    format!("{four} lines fit of every fourth and {one} of all"),
                    (0.15..0.4).contains(&ratio),
                )
            },
        ),
        claim(
            "every third: as many as of all",
            &found,
            "more than 0.75 of all",
            |all| {
                let (one, three) = (lines(all, 1), lines(all, 3));
                (
                    format!("{three} lines fit of every third and {one} of all"),
                    three * 4 > one * 3,
                )
            },
        ),
    ]);
    let figure = ElisionFigure {
        id: "001-fig3.5",
        title: "Alignment and the size of a transaction",
        place: "Figures 3.5 and 3.6, Table 3.2",
        expect: "Lines a power of two apart fall into few sets of the cache, and only as many lines of each set \
                 fit as it has ways. Of every nth line, sets ÷ gcd(sets, n) × ways fit.",
        shape,
        notes: notes(cache, attempts),
        beside: vec![
            document(&[
                ["n odd", "all alike: as much as the cache, 32 KiB"],
                ["n = 2, 6", "half of that"],
                ["n = 4", "a quarter"],
                [
                    "allocated one by one",
                    "less than all fits at n = 1, more than a quarter at n = 4",
                ],
            ]),
            Block {
                title: "Largest number of lines that half of the transactions could write"
                    .to_owned(),
                note:
                    "One array, and lines allocated one after the other, each in a box of its own."
                        .to_owned(),
                table,
            },
        ],
        panels: Vec::new(),
    };
    Ok(figure.sheet(request))
}

#[derive(Debug, Clone)]
#[repr(align(64))]
struct Line(u8);

/// Returns the largest number of lines, of every `step`th, that at least half of the attempts could
/// write; found by halving.
fn most_lines(cache: Cache, step: u64, together: bool, attempts: u32) -> Result<u64, NotAvailable> {
    let rtm = htm::rtm()?;
    let most = cache.bytes / cache.line * 2;
    let count = (most * step) as usize;
    let mut array = vec![Line(1); if together { count } else { 0 }];
    let one = |_| Box::new(Line(1));
    let mut alone: Vec<Box<Line>> = (0..if together { 0 } else { count }).map(one).collect();
    let mut fits = |lines: u64| {
        let (step, lines) = (step as usize, lines as usize);
        let tried = Attempts::times(rtm, attempts, || match together {
            true => array
                .iter_mut()
                .step_by(step)
                .take(lines)
                .for_each(|line| line.0 = std::hint::black_box(1)),
            false => alone
                .iter_mut()
                .step_by(step)
                .take(lines)
                .for_each(|line| line.0 = std::hint::black_box(1)),
        });
        tried.share() < 0.5
    };
    let (mut low, mut high) = (0, most);
    while low + 1 < high {
        let middle = low.midpoint(high);
        match fits(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_whose_pages_are_not_present_share_none() {
        for length in [1, 4_096, 5_000, 1 << 20] {
            let mut pages = Vec::new();
            let called = untouched(length, 20, |bytes| {
                assert_eq!(bytes.len(), length);
                let first = bytes.as_ptr().addr();
                pages.extend((first / PAGE)..=((first + length - 1) / PAGE));
            });
            assert_eq!(called, 20);
            let all = pages.len();
            pages.sort_unstable();
            pages.dedup();
            assert_eq!(pages.len(), all, "{length} bytes");
        }
        // As many as there is memory for.
        assert!(untouched(1 << 20, 1_000, |_| ()) >= 63);
    }
}
