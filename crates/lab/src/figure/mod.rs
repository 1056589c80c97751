//! Figures and tables of the documents that this engine follows, repeated here: the document's
//! numbers beside ours.
//!
//! The quick form of each takes a few minutes; `full` has the document's windows and repetitions.
//! Absolute numbers belong to the machine named; shapes are compared.

/// Settings of a figure.
pub mod request;

/// The document's numbers beside ours.
pub mod beside;

/// Judging what the documents claim by curves.
pub mod judge;

/// Common parts of the figures of whole workloads.
pub mod workload_figure;

/// Throughput over clients: 000-fig12, 000-fig14, 000-fig15.
pub mod curves;

/// Fewer processors: 000-fig1.
pub mod cores;

/// Throughput projected to processors that this machine does not have.
pub mod projection;

/// Where the time goes: 000-fig13, 002-fig13.
pub mod split;

/// One transaction that never ends: 000-fig16.
pub mod stalled;

/// TATP over clients: 000-fig17.
pub mod tatp;

/// Where its time goes: 000-fig18, 002-fig5, 002-fig6.
pub mod profiles;

/// Clients that share nothing but the engine: 002-fig1.
pub mod private_insert;

/// Throughput of the benchmarks, design by design: 002-fig12.
pub mod designs;

/// Scans through secondary indexes: 002-fig16.
pub mod secondary;

/// Eighteen statements on eight tables: 004-sysbench.
pub mod sysbench;

/// Locks that could be inherited: 002-fig14.
pub mod inherit;

/// Operations timed over all systems in turn.
pub mod timed;

/// Tables in memory and paged ones, compared: the figures of document 003.
mod components;

/// The processor-overlap model: 003-table3.
pub mod overlap;

/// Critical sections of a transaction: 002-fig3, 002-fig11.
pub mod sections;

/// Inserting into the log: 002-fig15.
pub mod log_insert;

/// Cost of latches: 003-table1.
pub mod latch_cost;

/// Memory of held locks.
pub mod lock_memory;

/// Cost of locks: 003-table4, 003-table5.
pub mod lock_cost;

/// Hardware transactions and latches elided by them: all figures of document 001.
pub mod elision;

use crate::{bench::error::BenchError, progress::Audience, report::sheet::Sheet};
use request::Request;

/// A figure that can be made here.
#[derive(Debug, Clone, Copy)]
pub struct Listed {
    /// Its name: the document and the figure in it.
    pub id: &'static str,
    /// Seconds that the brief form may take on two cores with little else to do, loading and
    /// checking included.
    pub brief: u32,
    /// Its content, in a sentence.
    pub sentence: &'static str,
    run: fn(&Request, Audience) -> Result<Sheet, BenchError>,
}

/// Seconds that the brief forms of all figures may take, one after the other.
pub const BRIEF: u32 = 27 * 60;

/// Figures that count critical sections; only a program built with the feature `account` can make
/// them.
pub const COUNTED: [&str; 2] = ["002-fig3", "002-fig11"];

/// All figures, by document.
pub const ALL: &[Listed] = &[
    Listed {
        id: "000-fig1",
        brief: 75,
        sentence: "one mutex over the lock table: throughput over clients, on fewer and on all processors",
        run: cores::figure_1,
    },
    Listed {
        id: "000-fig12",
        brief: 95,
        sentence: "read-only throughput over clients for every lock manager and the default, 10 and 100 rows a read",
        run: curves::figure_12,
    },
    Listed {
        id: "000-fig13",
        brief: 90,
        sentence: "where the time goes: idle, kernel, database, lock manager, latches",
        run: split::figure_13,
    },
    Listed {
        id: "000-fig14",
        brief: 95,
        sentence: "100 rows a read, without and with 20 % updates: throughput and aborts",
        run: curves::figure_14,
    },
    Listed {
        id: "000-fig15",
        brief: 130,
        sentence: "20 % updates, uniform and in a hotspot: throughput, aborts, deadlock victims",
        run: curves::figure_15,
    },
    Listed {
        id: "000-fig16",
        brief: 85,
        sentence: "one transaction that never ends: throughput, processor time and memory over time",
        run: stalled::figure_16,
    },
    Listed {
        id: "000-fig17",
        brief: 90,
        sentence: "TATP over clients, reading and with updates, for every lock manager and the default",
        run: tatp::figure_17,
    },
    Listed {
        id: "000-fig18",
        brief: 60,
        sentence: "where the time goes in TATP",
        run: profiles::figure_18,
    },
    Listed {
        id: "001-fig2.4",
        brief: 10,
        sentence: "the flag of a latch: width, TAS and TAS-T, test-and-set and exchange (2.4 to 2.7)",
        run: elision::flags::figure_4,
    },
    Listed {
        id: "001-fig3.1",
        brief: 2,
        sentence: "how much a hardware transaction can write and read (3.1, 3.2)",
        run: elision::size::figure_1,
    },
    Listed {
        id: "001-fig3.5",
        brief: 2,
        sentence: "how alignment changes that: every nth line (3.5, 3.6, Table 3.2)",
        run: elision::size::figure_5,
    },
    Listed {
        id: "001-fig3.7",
        brief: 2,
        sentence: "how long a hardware transaction can take",
        run: elision::limits::figure_7,
    },
    Listed {
        id: "001-fig3.8",
        brief: 2,
        sentence: "nested transactions and nested elided latches (3.8, 3.9)",
        run: elision::limits::figure_8,
    },
    Listed {
        id: "001-fig3.10",
        brief: 10,
        sentence: "cost of a pass without contention, for every latch and a transaction (3.10, C.3, C.4)",
        run: elision::overhead::figure_10,
    },
    Listed {
        id: "001-fig3.12",
        brief: 10,
        sentence: "a bank behind every latch (3.12, C.8, C.9)",
        run: elision::structures::figure_12,
    },
    Listed {
        id: "001-fig3.13",
        brief: 20,
        sentence: "counters behind every latch, in four layouts (3.13 to 3.16)",
        run: elision::structures::figure_13,
    },
    Listed {
        id: "001-fig3.17",
        brief: 10,
        sentence: "a doubly linked list behind every latch (3.17, D.5, D.6)",
        run: elision::structures::figure_17,
    },
    Listed {
        id: "001-fig3.18",
        brief: 20,
        sentence: "a hash map behind every latch, one for each bucket and one for all (3.18, 3.19, C.10)",
        run: elision::structures::figure_18,
    },
    Listed {
        id: "001-fig5.2",
        brief: 75,
        sentence: "lock managers whose latches are elided: txbench, a quarter updates, read committed (5.2 to 5.6)",
        run: elision::managers::figure_2,
    },
    Listed {
        id: "001-figC.1",
        brief: 2,
        sentence: "allocating inside a hardware transaction",
        run: elision::limits::figure_c1,
    },
    Listed {
        id: "002-fig1",
        brief: 35,
        sentence: "throughput of one client among others that share only the engine with it",
        run: private_insert::figure_1,
    },
    Listed {
        id: "002-fig3",
        brief: 20,
        sentence: "critical sections of one simple transaction, from the baseline to the default",
        run: sections::figure_3,
    },
    Listed {
        id: "002-fig5",
        brief: 12,
        sentence: "the log manager's share of the time as load rises, an update transaction of TATP",
        run: profiles::figure_5,
    },
    Listed {
        id: "002-fig6",
        brief: 12,
        sentence: "the lock manager's share of the time as load rises, TATP",
        run: profiles::figure_6,
    },
    Listed {
        id: "002-fig11",
        brief: 60,
        sentence: "critical sections of the benchmarks' transactions, for every design",
        run: sections::figure_11,
    },
    Listed {
        id: "002-fig12",
        brief: 85,
        sentence: "TATP, TPC-B and TPC-C over clients, for the document's designs that exist here",
        run: designs::figure_12,
    },
    Listed {
        id: "002-fig13",
        brief: 60,
        sentence: "where the time goes in TATP, TPC-B and TPC-C, for the document's designs that exist here",
        run: split::scaling_figure_13,
    },
    Listed {
        id: "002-fig14",
        brief: 75,
        sentence: "locks that could be inherited: considered, kept, used, revoked, in TATP, TPC-B and TPC-C",
        run: inherit::figure_14,
    },
    Listed {
        id: "002-fig15",
        brief: 50,
        sentence: "inserting into the log: MB/s over threads for every log buffer, records of 120 bytes",
        run: log_insert::figure_15,
    },
    Listed {
        id: "002-fig16",
        brief: 55,
        sentence: "scans through a secondary index: 10, 100 and 10,000 rows, in table order and out of it",
        run: secondary::figure_16,
    },
    Listed {
        id: "003-table1",
        brief: 40,
        sentence: "cost of latches, warm and cold, and their share of scans and fetches",
        run: latch_cost::table_1,
    },
    Listed {
        id: "003-table3",
        brief: 15,
        sentence: "processors that one latch over a whole table can keep busy: the document's model, then ours",
        run: overlap::table_3,
    },
    Listed {
        id: "003-table4",
        brief: 45,
        sentence: "cost of a lock and its release: requested, released, remembered, real; memory of a held lock",
        run: lock_cost::table_4,
    },
    Listed {
        id: "003-table5",
        brief: 40,
        sentence: "the share of locking in five transactions, for every lock manager",
        run: lock_cost::table_5,
    },
    Listed {
        id: "004-sysbench",
        brief: 75,
        sentence: "sysbench, 2 to 1,024 clients, pareto and uniform: one latch over all locks, and shards",
        run: sysbench::charts,
    },
    Listed {
        id: "projection",
        brief: 45,
        sentence: "throughput measured on few processors and projected to 4 to 256, dashed, by two models",
        run: projection::figure,
    },
];

/// Names of the experiments of document 003 whose tables are figures.
const CALLED: [(&str, &str); 4] = [
    ("latch-cost", "003-table1"),
    ("overlap", "003-table3"),
    ("lock-cost", "003-table4"),
    ("wisconsin", "003-table5"),
];

/// Returns the figure of this name, or of the experiment with this name.
///
/// # Errors
///
/// If there is none; the text lists all names.
pub fn find(id: &str) -> Result<&'static Listed, String> {
    let called = CALLED.iter().find(|(name, _)| *name == id);
    let id = called.map_or(id, |(_, figure)| *figure);
    let found = ALL.iter().find(|one| one.id.eq_ignore_ascii_case(id));
    found.ok_or_else(|| {
        let ids: Vec<&str> = ALL.iter().map(|one| one.id).collect();
        format!(
            "there is no figure \"{id}\"; choose one of {}. `foxton figure` says what each shows",
            ids.join(", ")
        )
    })
}

/// Returns the figure of this name, or all figures of the document with this number.
///
/// # Errors
///
/// As [`find`].
pub fn find_all(id: &str) -> Result<Vec<&'static Listed>, String> {
    let of = |one: &&Listed| {
        one.id
            .split_once('-')
            .is_some_and(|(document, _)| document == id)
    };
    let all: Vec<&Listed> = ALL.iter().filter(of).collect();
    match all.is_empty() {
        true => find(id).map(|one| vec![one]),
        false => Ok(all),
    }
}

impl Listed {
    /// True if its document has two components of tables, as the engine has.
    fn compares_tables(&self) -> bool {
        self.id.starts_with("003-")
    }

    /// Makes the figure.
    ///
    /// # Errors
    ///
    /// If the settings contradict each other or the machine, or a database cannot be made.
    pub fn make(&self, request: &Request, audience: Audience) -> Result<Sheet, BenchError> {
        let has_tables = !request.tables.is_empty() || request.page_memory.is_some();
        if has_tables && !self.compares_tables() {
            return Err(BenchError::Settings(format!(
                "figure {} has its tables in memory, as its document has; --tables is for the figures of \
                 document 003, and for the workloads of `foxton bench`",
                self.id
            )));
        }
        (self.run)(request, audience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_document_means_all_its_figures() {
        let all = find_all("001").expect("there are some");
        assert!(all.len() > 5 && all.iter().all(|one| one.id.starts_with("001-")));
        let one = find_all("003-table1").expect("it is listed");
        assert_eq!(
            one.iter().map(|one| one.id).collect::<Vec<_>>(),
            ["003-table1"]
        );
        assert_eq!(find_all("004").map(|all| all.len()), Ok(1));
        assert!(find_all("005").is_err());
    }

    #[test]
    fn all_brief_forms_together_keep_to_the_budget() {
        assert!(ALL.iter().all(|one| one.brief > 0));
        let all: u32 = ALL.iter().map(|one| one.brief).sum();
        assert!(all <= BRIEF, "{all} s are more than {BRIEF} s");
    }

    #[test]
    fn names_are_unique_and_an_unknown_name_is_answered_with_all_of_them() {
        for (at, one) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.id != one.id));
            assert_eq!(find(one.id).map(|found| found.id), Ok(one.id));
            let error = find("000-fig99").map(|found| found.id).unwrap_err();
            assert!(error.contains(one.id) && error.contains("000-fig99"));
        }
        for (name, id) in CALLED {
            assert_eq!(find(name).map(|found| found.id), Ok(id));
        }
    }
}
