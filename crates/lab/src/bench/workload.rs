//! Any workload over a sweep of clients.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use foxton::Database;
use serde_json::Value;

use super::{
    error::BenchError,
    runs::Runs,
    scratch::Scratch,
    sweep::{Subject, Sweep},
};
use crate::{
    driver::Client,
    measure::{
        machine::Machine,
        outcome::{Ended, Tally},
    },
    progress::{Audience, Progress},
    report::findings::Findings,
    system::System,
    workload::contract::{Loaded, Workload},
};

/// Loads a database for each system and measures.
///
/// # Errors
///
/// If the settings contradict each other, or the databases cannot be created. A failed check is
/// part of the findings, not an error.
pub fn run(
    workload: &dyn Workload,
    runs: &Runs,
    audience: Audience,
) -> Result<Findings, BenchError> {
    let runs = &suited(workload, runs)?;
    let machine = Machine::here();
    let subject = |system: &System| Prepared::new(workload, system, runs, audience);
    let mut subjects = runs
        .systems
        .iter()
        .map(subject)
        .collect::<Result<Vec<_>, _>>()?;
    let sweep = Sweep {
        mpls: runs.mpls.clone(),
        reps: runs.reps,
        plan: runs.plan(),
        split: runs.split,
    };
    let mut curves = sweep.run(&mut subjects, audience);
    for point in curves.iter_mut().flat_map(|curve| &mut curve.points) {
        point.facts = workload.facts(point);
    }
    let about = workload.about();
    let settings = listed(workload, runs);
    let blocks = workload.blocks(&curves);
    Ok(Findings {
        workload: about.name.to_owned(),
        variant: about.variant,
        title: about.title,
        description: about.description,
        checked: about.checked,
        command: runs.command.clone(),
        settings,
        machine,
        blocks,
        curves,
        timelines: Vec::new(),
        event: None,
        blocks_have_points: false,
    })
}

/// Returns the runs with their points in order, if they and the workload are valid and there is
/// memory for the databases.
///
/// # Errors
///
/// If not.
pub(crate) fn suited(workload: &dyn Workload, runs: &Runs) -> Result<Runs, BenchError> {
    workload.sound().map_err(BenchError::Settings)?;
    let size = workload.size();
    let clients = runs.mpls.iter().max().copied().unwrap_or(0);
    let rows = size.rows.saturating_add(workload.added_by(clients));
    runs.tidied(rows, size.row_bytes)
}

/// The settings for results.
fn listed(workload: &dyn Workload, runs: &Runs) -> Vec<(&'static str, Value)> {
    let mut listed = workload.about().settings;
    listed.extend(runs.listed());
    listed.extend(workload.grows().then(|| runs.kept()));
    listed
}

/// A workload in a database of one system, ready for clients.
pub struct Prepared<'a> {
    workload: &'a dyn Workload,
    runs: &'a Runs,
    system: System,
    // `None` only while it is loaded again.
    place: Option<Place>,
}

impl fmt::Debug for Prepared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.workload.about().name;
        write!(f, "{name} in a database of {}", self.system)
    }
}

/// A database and its data.
struct Place {
    loaded: Box<dyn Loaded>,
    ended: Arc<Mutex<Tally>>,
    clients: u32,
    scratch: Scratch,
}

impl<'a> Prepared<'a> {
    /// Creates a database for `system` and loads it.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made or the engine refuses.
    pub fn new(
        workload: &'a dyn Workload,
        system: &System,
        runs: &'a Runs,
        audience: Audience,
    ) -> Result<Prepared<'a>, BenchError> {
        let rows = workload.size().rows;
        let progress = audience.count(&format!("loading {system}"), rows, "rows");
        let place = place(workload, system, runs, &progress)?;
        Ok(Prepared {
            workload,
            runs,
            system: system.clone(),
            place: Some(place),
        })
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.place().scratch.db
    }

    fn place(&self) -> &Place {
        self.place
            .as_ref()
            .expect("after a failed load nothing is run")
    }
}

fn place(
    workload: &dyn Workload,
    system: &System,
    runs: &Runs,
    progress: &Progress,
) -> Result<Place, BenchError> {
    let (parent, watched) = (runs.directory.as_deref(), runs.watched(system));
    let scratch = Scratch::opened(system.clone(), parent, watched.as_deref(), |options| {
        options.durability = system.durability(runs.durability);
        workload.indexes(&mut options.indexes);
    })?;
    let loaded = workload
        .load(&scratch.loading(progress))
        .map_err(BenchError::engine(format!("loading {system}")))?;
    Ok(Place {
        loaded,
        ended: Arc::new(Mutex::new(Tally::new(workload.kinds()))),
        clients: 0,
        scratch,
    })
}

impl Subject for Prepared<'_> {
    fn names(&self) -> (String, String) {
        self.place().scratch.names()
    }

    fn note(&self) -> String {
        self.system.note()
    }

    fn settings(&self) -> Vec<(&'static str, Value)> {
        self.system.listed()
    }

    fn largest_mpl(&self) -> u32 {
        self.place().scratch.largest_mpl()
    }

    fn kinds(&self) -> &'static [&'static str] {
        self.workload.kinds()
    }

    fn prepare(&mut self, progress: &Progress) -> Result<(), String> {
        let used = self.place().clients > 0;
        if !used || self.runs.keep || !self.workload.grows() {
            return Ok(());
        }
        progress.now(&format!("loading {} again", self.system));
        // The old database is dropped first, because two at once may not fit into memory.
        self.place = None;
        let nobody = Audience::Nobody.count("", 0, "");
        let place = place(self.workload, &self.system, self.runs, &nobody);
        self.place = Some(place.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn clients(&mut self, mpl: u32) -> Vec<Box<dyn Client>> {
        let kinds = self.workload.kinds();
        let place = self
            .place
            .as_mut()
            .expect("after a failed load nothing is run");
        let first = place.clients;
        place.clients += mpl;
        let client = |number: u32| {
            let client = Counted {
                client: place.loaded.client(&place.scratch.db, number),
                mine: Tally::new(kinds),
                all: place.ended.clone(),
            };
            Box::new(client) as Box<dyn Client>
        };
        (first..first + mpl).map(client).collect()
    }

    fn check(&mut self) -> Result<(), String> {
        let place = self
            .place
            .as_mut()
            .expect("after a failed load nothing is run");
        let ended = place
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        place.loaded.check(&place.scratch.db, &ended)
    }

    fn diagnose(&self) -> String {
        self.place().scratch.diagnose()
    }
}

/// A client, and the results of all its transactions, those of the ramp included. Dropping it adds
/// them to those of the other clients.
struct Counted {
    client: Box<dyn Client>,
    mine: Tally,
    all: Arc<Mutex<Tally>>,
}

impl Client for Counted {
    fn transaction(&mut self) -> Ended {
        let ended = self.client.transaction();
        self.mine.count(ended.clone());
        ended
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.add(&self.mine);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use foxton::{Durability, Options};

    use super::*;
    use crate::{
        system::Locks,
        workload::{
            loading::Loading,
            tatp::{Mix, Shape, Tatp},
            tpcb::{Choice, HISTORY, Scale, Tpcb},
        },
    };

    const BANK: Tpcb = Tpcb {
        scale: Scale {
            branches: 2,
            accounts_a_branch: 10,
        },
        choice: Choice::Remote,
        seed: 1,
    };

    fn runs(keep: bool) -> Runs {
        Runs {
            systems: Vec::new(),
            mpls: vec![1],
            reps: 1,
            ramp: Duration::ZERO,
            window: Duration::ZERO,
            durability: Durability::None,
            directory: None,
            observe: None,
            split: false,
            keep,
            command: String::new(),
        }
    }

    #[test]
    fn results_name_the_directory_of_the_data_and_whether_growing_data_was_kept() {
        let said = |workload: &dyn Workload, runs: &Runs, name: &str| {
            let listed = listed(workload, runs);
            let found = listed.into_iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| value)
        };
        for keep in [false, true] {
            assert_eq!(said(&BANK, &runs(keep), "keep"), Some(keep.into()));
        }
        let reads = Tatp::new(Shape {
            mix: Mix::Read,
            ..Shape::usual()
        });
        assert!(!reads.grows() && said(&reads, &runs(true), "keep").is_none());
        let elsewhere = Runs {
            directory: Some("/elsewhere".into()),
            observe: Some("/watch".into()),
            ..runs(false)
        };
        assert_eq!(
            said(&BANK, &elsewhere, "directory"),
            Some("/elsewhere".into())
        );
        assert_eq!(said(&BANK, &elsewhere, "observed"), Some(true.into()));
        assert_eq!(said(&BANK, &runs(false), "observed"), Some(false.into()));
        let usual = said(&BANK, &runs(false), "directory");
        assert_eq!(usual, std::env::temp_dir().to_str().map(Value::from));
    }

    #[test]
    fn data_that_grow_are_loaded_again_for_each_run_unless_they_are_kept() {
        for keep in [false, true] {
            let runs = runs(keep);
            let system = System::new(Locks::Default, None);
            let mut subject = Prepared::new(&BANK, &system, &runs, Audience::Nobody).unwrap();
            let progress = Audience::Nobody.count("", 0, "");
            let booked = |subject: &Prepared<'_>| {
                let count = subject.database().run(|tx| tx.range(&HISTORY, ..).count());
                count.unwrap()
            };
            let mut run = |booked_before| {
                subject.prepare(&progress).unwrap();
                assert_eq!(booked(&subject), booked_before, "keep: {keep}");
                for mut client in subject.clients(3) {
                    client.transaction();
                    client.transaction();
                }
                subject.check().unwrap();
            };
            run(0);
            run(if keep { 6 } else { 0 });
        }
    }

    #[test]
    fn the_check_covers_every_transaction_and_notices_a_missing_one() {
        let db = foxton::Database::in_memory(Options::tiny()).unwrap();
        let scale = Scale {
            branches: 1,
            accounts_a_branch: 10,
        };
        let bank = Tpcb {
            scale,
            choice: Choice::Remote,
            seed: 1,
        };
        let progress = Audience::Nobody.count("", 0, "");
        let mut loaded = bank.load(&Loading::new(&db, 1, &progress)).unwrap();
        let all = Arc::new(Mutex::new(Tally::new(bank.kinds())));
        let mut counted = Counted {
            client: loaded.client(&db, 0),
            mine: Tally::new(bank.kinds()),
            all: all.clone(),
        };
        counted.transaction();
        let nothing = all.lock().unwrap().clone();
        let what = loaded.check(&db, &nothing).unwrap_err();
        assert!(what.contains("0 transactions were acknowledged"), "{what}");
        drop(counted);
        let all = all.lock().unwrap().clone();
        assert_eq!(loaded.check(&db, &all), Ok(()));
    }
}
