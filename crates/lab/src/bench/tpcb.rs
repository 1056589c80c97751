//! tpcb over a sweep of clients.
//!
//! The history grows from point to point; everything else stays the size it was loaded with.

use foxton::Database;
use serde_json::json;

use super::{
    error::BenchError,
    runs::Runs,
    scratch::Scratch,
    sweep::{Subject, Sweep},
};
use crate::{
    driver::Client,
    measure::machine::Machine,
    progress::Audience,
    report::findings::Findings,
    system::System,
    workload::tpcb::{
        Scale,
        check::check,
        client::{Acknowledged, KINDS, TpcbClient},
        load::load,
        row::BALANCE_BYTES,
    },
};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How many rows.
    pub scale: Scale,
    /// Seed of the clients.
    pub seed: u64,
    /// What is compared, and how it is run.
    pub runs: Runs,
}

/// Loads a database for each system and measures.
///
/// # Errors
///
/// If the settings contradict each other, or the databases cannot be made.
pub fn run(settings: &Settings, audience: Audience) -> Result<Findings, BenchError> {
    let rows = u64::from(settings.scale.accounts());
    let runs = settings.runs.tidied(rows, BALANCE_BYTES as u64)?;
    let bank = |system: &System| Bank::new(system.clone(), settings, audience);
    let mut subjects: Vec<Bank> = runs.systems.iter().map(bank).collect::<Result<_, _>>()?;
    let sweep = Sweep {
        mpls: runs.mpls.clone(),
        reps: runs.reps,
        plan: runs.plan(),
    };
    let scale = settings.scale;
    let mut listed = vec![
        ("branches", json!(scale.branches)),
        ("accounts", json!(scale.accounts())),
        ("isolation", json!("serializable")),
        ("seed", json!(settings.seed)),
    ];
    listed.extend(runs.listed());
    Ok(Findings {
        workload: "tpcb".to_owned(),
        variant: format!("{}-branches", scale.branches),
        title: format!("tpcb, {} branches", scale.branches),
        description: format!(
            "{} branches of ten tellers and {} accounts. A transaction adds an amount to an \
             account, its teller and the teller's branch, and writes a row of history.",
            scale.branches, scale.accounts_a_branch
        ),
        checked: "after each run every balance is the sum of its history, every branch the sum of \
                  its tellers, and history has a row for each acknowledged commit."
            .to_owned(),
        command: runs.command.clone(),
        settings: listed,
        machine: Machine::here(),
        curves: sweep.run(&mut subjects, audience),
        timelines: Vec::new(),
        event: None,
        blocks: Vec::new(),
    })
}

/// The bank in a database of one system.
#[derive(Debug)]
pub(crate) struct Bank {
    scratch: Scratch,
    scale: Scale,
    seed: u64,
    next_client: u32,
    acknowledged: Acknowledged,
}

impl Bank {
    /// Makes a database for `system` and loads it.
    pub(crate) fn new(
        system: System,
        settings: &Settings,
        audience: Audience,
    ) -> Result<Bank, BenchError> {
        let runs = &settings.runs;
        let (parent, watched) = (runs.directory.as_deref(), runs.watched(&system));
        let scratch = Scratch::new(system, runs.durability, parent, watched.as_deref())?;
        let (scale, system) = (settings.scale, &scratch.system);
        let rows = u64::from(scale.branches + scale.tellers() + scale.accounts());
        let progress = audience.count(&format!("loading {system}"), rows, "rows");
        load(&scratch.db, scale, &progress)
            .map_err(BenchError::engine(format!("loading {system}")))?;
        Ok(Bank {
            scratch,
            scale,
            seed: settings.seed,
            next_client: 0,
            acknowledged: Acknowledged::default(),
        })
    }

    /// The database.
    pub(crate) fn database(&self) -> &Database {
        &self.scratch.db
    }
}

impl Subject for Bank {
    fn names(&self) -> (String, String) {
        self.scratch.names()
    }

    fn note(&self) -> String {
        self.scratch.system.note()
    }

    fn largest_mpl(&self) -> u32 {
        self.scratch.largest_mpl()
    }

    fn kinds(&self) -> &'static [&'static str] {
        KINDS
    }

    fn clients(&mut self, mpl: u32) -> Vec<Box<dyn Client>> {
        let first = self.next_client;
        self.next_client += mpl;
        let client = |number: u32| {
            let (db, acknowledged) = (self.scratch.db.clone(), self.acknowledged.clone());
            let client = TpcbClient::new(db, self.scale, self.seed, number, acknowledged);
            Box::new(client) as Box<dyn Client>
        };
        (first..first + mpl).map(client).collect()
    }

    fn check(&mut self) -> Result<(), String> {
        check(
            &self.scratch.db,
            self.scale,
            Some(self.acknowledged.count()),
        )
    }

    fn diagnose(&self) -> String {
        self.scratch.diagnose()
    }
}
