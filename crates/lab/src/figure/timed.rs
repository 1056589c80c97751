//! The operations of the wisconsin workload, timed over every system by turns.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use foxton::Durability;

use crate::{
    bench::{error::BenchError, scratch::Scratch},
    measure::spread::Spread,
    progress::Progress,
    system::System,
    workload::wisconsin::{
        self,
        operation::{Operation, Session, Took},
    },
};

/// What one operation took over one system.
#[derive(Debug, Clone, Default)]
pub(super) struct Timed {
    /// Seconds of the whole transaction, by repetition.
    pub(super) service: Spread,
    /// Seconds of it inside the operations on tables, locks included.
    pub(super) storage: Spread,
    /// Locks it came to hold.
    pub(super) locks: f64,
}

/// For how long, how often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    pub(super) rows: u32,
    pub(super) each: Duration,
    pub(super) reps: u32,
}

struct Opened {
    scratch: Scratch,
    session: Session,
}

/// For each system, for each operation. The systems take turns at each operation.
pub(super) fn time(
    systems: &[System],
    operations: &[Operation],
    effort: Effort,
    directory: Option<&Path>,
    progress: &Progress,
) -> Result<Vec<Vec<Timed>>, BenchError> {
    let open = |system: &System| -> Result<Opened, BenchError> {
        let scratch = Scratch::new(system.clone(), Durability::Buffered, directory, None)?;
        wisconsin::load(&scratch.db, effort.rows, 1).map_err(engine("loading wisconsin"))?;
        Ok(Opened {
            session: Session::new(scratch.db.clone(), effort.rows),
            scratch,
        })
    };
    let mut opened: Vec<Opened> = systems.iter().map(open).collect::<Result<_, _>>()?;
    let mut found = vec![vec![Gathered::default(); operations.len()]; opened.len()];
    for _ in 0..effort.reps {
        for (at, &operation) in operations.iter().enumerate() {
            for (one, found) in opened.iter_mut().zip(&mut found) {
                let (took, locks) = one.time(operation, effort.each)?;
                found[at].service.push(took.service.as_secs_f64());
                found[at].storage.push(took.storage.as_secs_f64());
                found[at].locks = locks;
                progress.advance(1);
            }
        }
    }
    let timed = |gathered: Gathered| Timed {
        service: Spread::new(gathered.service),
        storage: Spread::new(gathered.storage),
        locks: gathered.locks,
    };
    let found = found
        .into_iter()
        .map(|by_operation| by_operation.into_iter().map(timed).collect());
    Ok(found.collect())
}

/// What the repetitions gave so far, in seconds.
#[derive(Debug, Clone, Default)]
struct Gathered {
    service: Vec<f64>,
    storage: Vec<f64>,
    locks: f64,
}

impl Opened {
    /// Means over as many transactions as fit, and the locks of each.
    fn time(&mut self, operation: Operation, each: Duration) -> Result<(Took, f64), BenchError> {
        let doing = engine(operation.name());
        let locks = |one: &Opened| one.scratch.db.stats().locks.acquisitions;
        let (before, began) = (locks(self), Instant::now());
        let (mut sum, mut count) = (Took::default(), 0u32);
        while began.elapsed() < each || count == 0 {
            let took = self.session.run(operation).map_err(&doing)?;
            sum.service += took.service;
            sum.storage += took.storage;
            count += 1;
        }
        let mut taken = (locks(self) - before) as f64 / f64::from(count);
        if operation == Operation::Insert {
            // The delete that undoes it takes as many.
            taken /= 2.0;
        }
        self.session.settle().map_err(&doing)?;
        let took = Took {
            service: sum.service / count,
            storage: sum.storage / count,
        };
        Ok((took, taken))
    }
}

fn engine(doing: &str) -> impl Fn(foxton::Error) -> BenchError {
    let doing = doing.to_owned();
    move |cause| BenchError::Engine {
        doing: doing.clone(),
        cause,
    }
}
