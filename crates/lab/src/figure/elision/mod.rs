//! Document 001, repeated: what hardware transactions can hold, what they cost, and what latches
//! gain that are elided by them.
//!
//! Most processors have none. Then each figure says so in place of a number. It shows what can be
//! measured without them, which is latches that are taken, and what the size of the caches lets one
//! expect.

/// The first cache, as the system reports it.
pub mod cache;

/// Transactions tried over and over.
pub mod attempts;

/// Widths and forms of a latch's flag: 001-fig2.4.
pub mod flags;

/// The size of a transaction: 001-fig3.1, 001-fig3.5.
pub mod size;

/// How long transactions can take, how deeply they nest, what they can allocate: 001-fig3.7,
/// 001-fig3.8, 001-figC.1.
pub mod limits;

/// Cost of a pass: 001-fig3.10.
pub mod overhead;

/// Structures behind latches: 001-fig3.12, 001-fig3.13, 001-fig3.17, 001-fig3.18.
pub mod structures;

/// Lock managers over elided latches: 001-fig5.2.
pub mod managers;

use super::request::Request;
use crate::{
    measure::machine::Machine,
    report::{
        findings::{Block, Findings},
        shape::{Claim, Shape},
        sheet::Sheet,
        table::Table,
    },
};
use foxton_sync::{htm, latch::BackendKind};
use serde_json::json;

/// Schrimpf.
const ELISION: &str =
    "document 001, \"Scalable Database Concurrency Control using Transactional Memory\"";

/// A figure of document 001, to become a sheet.
struct ElisionFigure {
    id: &'static str,
    title: &'static str,
    place: &'static str,
    expect: &'static str,
    shape: Shape,
    notes: Vec<String>,
    beside: Vec<Block>,
    panels: Vec<Findings>,
}

impl ElisionFigure {
    fn sheet(mut self, request: &Request) -> Sheet {
        let machine = Machine::here();
        if machine.cores < DOCUMENT_CORES {
            self.notes.push(format!(
                "The document's machine has {DOCUMENT_CORES} cores, this one has {}. Further threads take \
                 turns, so effects of threads side by side are smaller or absent.",
                machine.cores
            ));
        }
        if BackendKind::available() == Ok(BackendKind::Software) {
            self.notes.push(EMULATED.to_owned());
        }
        Sheet {
            id: self.id,
            title: self.title.to_owned(),
            source: format!("{ELISION}, {}", self.place),
            expect: self.expect.to_owned(),
            shape: self.shape,
            notes: self.notes,
            beside: self.beside,
            pictures: Vec::new(),
            panels: self.panels,
            settings: vec![
                ("form", json!(request.form())),
                ("transactions", json!(availability())),
            ],
            machine,
            command: request.command.clone(),
        }
    }
}

const DOCUMENT_CORES: usize = 4;

/// The note of a build in which software emulates hardware transactions.
const EMULATED: &str = "Transactions were emulated by software, one at a time for each latch, and one in four \
                        aborts on purpose. Numbers of elided latches show only that they can be reported; \
                        none of them means anything.";

/// The measurement of a claim whose points are missing.
const NO_POINTS: &str = "no point of it was measured";

/// Returns why there are no hardware transactions here, as the end of a sentence.
pub fn reason(why: htm::NotAvailable) -> String {
    match why {
        htm::NotAvailable::Build => {
            "this program was not built for a processor with RTM".to_owned()
        }
        htm::NotAvailable::Processor => "this processor has no RTM".to_owned(),
        htm::NotAvailable::AlwaysAborts => {
            "this processor aborts every hardware transaction".to_owned()
        }
        htm::NotAvailable::SwitchedOff => "FOXTON_HTM is off".to_owned(),
        htm::NotAvailable::SwitchNotUnderstood => "FOXTON_HTM is neither on nor off".to_owned(),
        other => other.to_string(),
    }
}

/// Says whether there are hardware transactions here, and whether software emulates those of
/// latches.
fn availability() -> String {
    let own = htm::rtm().map_or_else(|why| why.to_string(), |_| "available".to_owned());
    match BackendKind::available() {
        Ok(BackendKind::Software) => {
            format!("{own}; those of latches are {}", BackendKind::Software)
        }
        _ => own,
    }
}

/// A claim about latches that begin transactions: like [`claim`], but if software emulates the
/// transactions, the measurement is shown and not judged.
fn claim_of_latches<T>(
    says: &str,
    found: impl FnOnce() -> T,
    expected: &str,
    judge: impl FnOnce(&T) -> (String, bool),
) -> Claim {
    let means = BackendKind::available();
    let judged = claim(says, &means.map(|_| found()), expected, judge);
    match means {
        Ok(BackendKind::Software) => {
            Claim::not_measured(says, format!("{}: {}", BackendKind::Software, judged.found))
        }
        _ => judged,
    }
}

/// A claim about hardware transactions: judged if there are any.
fn claim<T>(
    says: &str,
    found: &Result<T, htm::NotAvailable>,
    expected: &str,
    judge: impl FnOnce(&T) -> (String, bool),
) -> Claim {
    match found {
        Ok(found) => {
            let (words, holds) = judge(found);
            Claim::new(says, words, expected, holds)
        }
        Err(why) => Claim::not_measured(says, reason(*why)),
    }
}

/// The document's results, line by line.
fn document(lines: &[[&str; 2]]) -> Block {
    let mut table = Table::new(["measured", "the document's result"]);
    for line in lines {
        table.row(line.map(str::to_owned));
    }
    Block {
        title: "The document's results".to_owned(),
        note: "On a processor of four cores with a first data cache of 32 KiB, 8 ways, 64 sets."
            .to_owned(),
        table,
    }
}

/// The claim about the adaptive latch; it is ours, because the document has no such latch.
const ADAPTS: &str = "the adaptive latch costs at most a twentieth, everywhere";
/// The least throughput of the adaptive latch, as a share of the latch that it is built on.
const ADAPTIVE_LEAST: f64 = 0.95;

/// Percent, or that there is no number.
fn percent_or(found: Result<f64, &htm::NotAvailable>) -> String {
    match found {
        Ok(share) => format!("{:.1} %", share * 100.0),
        Err(_) => "not available".to_owned(),
    }
}
