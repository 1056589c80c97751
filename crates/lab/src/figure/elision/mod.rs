//! Document 001, repeated: what transactions of the processor can hold, what they cost, and what
//! latches gain that are elided by them.
//!
//! Most processors have none. Then each of these figures says so where a number would stand, shows
//! what can be had without (latches that are taken), and what the processor's own account of its
//! caches lets one expect.

/// The first cache, as the system reports it.
pub mod cache;

/// Transactions tried over and over.
pub mod tried;

/// Widths and forms of the flag that a latch is: 001-fig2.4.
pub mod flags;

/// How much fits into a transaction: 001-fig3.1, 001-fig3.5.
pub mod size;

/// How long it may take, how deep it may be, what it may allocate: 001-fig3.7, 001-fig3.8,
/// 001-figC.1.
pub mod limits;

/// What a pass costs: 001-fig3.10.
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
use foxton_sync::{htm, latch::Means};
use serde_json::json;

/// Schrimpf.
const ELISION: &str =
    "document 001, \"Scalable Database Concurrency Control using Transactional Memory\"";

/// What the documents of this one have of a figure beside what was measured.
struct Told {
    id: &'static str,
    title: &'static str,
    place: &'static str,
    expect: &'static str,
    shape: Shape,
    notes: Vec<String>,
    beside: Vec<Block>,
    panels: Vec<Findings>,
}

impl Told {
    fn sheet(mut self, request: &Request) -> Sheet {
        let machine = Machine::here();
        if machine.cores < DOCUMENT_CORES {
            self.notes.push(format!(
                "The document's machine has {DOCUMENT_CORES} cores, this one has {}: threads beyond that take \
                 turns, and what needs threads side by side shows less or not at all.",
                machine.cores
            ));
        }
        if Means::here() == Ok(Means::Software) {
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

/// What everything says that was made by a build in which software stands in for the processor.
const EMULATED: &str = "Transactions were emulated by software, one at a time for each latch, of which one in four \
                        aborts on purpose: what is told of elided latches shows that it can be told, and no number of \
                        theirs means anything.";

/// Whether there are transactions of the processor here, in words; and if software stands in for
/// them, that.
fn availability() -> String {
    let own = htm::rtm().map_or_else(|why| why.to_string(), |_| "available".to_owned());
    match Means::here() {
        Ok(Means::Software) => format!("{own}; those of latches are {}", Means::Software),
        _ => own,
    }
}

/// A claim of what latches do that begin transactions: as [`claim`], but where software stands in
/// for the processor what was found is told and not held against anything.
fn claim_of_latches<T>(
    says: &str,
    found: impl FnOnce() -> T,
    judge: impl FnOnce(&T) -> (String, bool),
) -> Claim {
    let means = Means::here();
    let told = claim(says, &means.map(|_| found()), judge);
    match means {
        Ok(Means::Software) => Claim::unseen(says, format!("{}: {}", Means::Software, told.found)),
        _ => told,
    }
}

/// A claim of what transactions do: held against what was found, where there are any.
fn claim<T>(
    says: &str,
    found: &Result<T, htm::NotAvailable>,
    judge: impl FnOnce(&T) -> (String, bool),
) -> Claim {
    match found {
        Ok(found) => {
            let (words, holds) = judge(found);
            Claim::new(says, words, holds)
        }
        Err(why) => Claim::unseen(says, why.to_string()),
    }
}

/// The document's words, line by line.
fn document(lines: &[[&str; 2]]) -> Block {
    let mut table = Table::new(["what", "the document says"]);
    for line in lines {
        table.row(line.map(str::to_owned));
    }
    Block {
        title: "What the document found".to_owned(),
        note: "On a processor of four cores with a first data cache of 32 KiB, 8 ways, 64 sets."
            .to_owned(),
        table,
    }
}

/// What the latch that adapts is to keep to; not the document's, which has none.
const ADAPTS: &str = "the latch that adapts costs a twentieth at most, everywhere";
/// So much of what the latch under it does, or more.
const ADAPTIVE_LEAST: f64 = 0.95;

/// Percent, or why there is no number.
fn percent_or(found: Result<f64, &htm::NotAvailable>) -> String {
    match found {
        Ok(share) => format!("{:.1} %", share * 100.0),
        Err(_) => "not available".to_owned(),
    }
}
