//! A system to compare: one configuration of the engine.

use std::{fmt, str::FromStr, time::Duration};

use foxton_lock::any::AnyManager;

use serde_json::{Value, json};

use foxton::{
    Admission, Durability, Isolation, LatchKind, LockInheritance, LockManagerKind, Locking,
    LogBufferKind, Options, SnapshotMethod, TableComponent, VictimPolicy,
};

/// Locks, as named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locks {
    /// This lock manager.
    Manager(LockManagerKind),
    /// This lock manager with inheritance of hot locks on tables: `bucket+inherit`.
    Inheriting(LockManagerKind),
    /// The engine's default lock manager.
    Default,
    /// No locking at all: one client only.
    None,
}

impl FromStr for Locks {
    type Err = String;
    fn from_str(text: &str) -> Result<Locks, String> {
        match text {
            "default" => Ok(Locks::Default),
            "none" => Ok(Locks::None),
            _ => {
                let parsed = match text.strip_suffix(INHERIT) {
                    Some(manager) => manager.parse().map(Locks::Inheriting),
                    None => text.parse().map(Locks::Manager),
                };
                parsed.map_err(|_| {
                    format!(
                        "\"{text}\" is not a lock manager; choose one of {}, each alone or with {INHERIT}, default \
                         or none",
                        managers()
                    )
                })
            }
        }
    }
}

/// The suffix of a lock manager with inheritance.
const INHERIT: &str = "+inherit";

impl Locks {
    /// The systems to compare by default: every manager in its default form, except the reference.
    pub fn usual() -> Vec<Locks> {
        let usual = |kind: &LockManagerKind| {
            *kind != LockManagerKind::Reference && !kind.to_string().contains(':')
        };
        let kinds = LockManagerKind::ALL.into_iter().filter(usual);
        kinds.map(Locks::Manager).collect()
    }
}

fn managers() -> String {
    LockManagerKind::ALL.map(|kind| kind.to_string()).join(", ")
}

/// Parses a component as the command line names it: `memory` or `paged`.
///
/// # Errors
///
/// A sentence that names both.
pub fn tables(text: &str) -> Result<TableComponent, String> {
    match text {
        "memory" => Ok(TableComponent::Resident),
        "paged" => Ok(TableComponent::Paged),
        _ => Err(format!(
            "\"{text}\" is no component; give memory, paged or both"
        )),
    }
}

/// Name of a component on the command line and in results.
fn tables_name(component: TableComponent) -> &'static str {
    match component {
        TableComponent::Paged => "paged",
        _ => "memory",
    }
}

/// Timeout of lock waits. No wait here is to time out: a wait of seconds behind a thousand clients
/// is slow, and must show as slow and not as an error. A client that is never woken is reported as
/// hanging long before, with the waits.
pub const LOCK_WAIT: Duration = Duration::from_secs(3_600);

/// One configuration of the engine, compared with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    locks: Locks,
    manager: LockManagerKind,
    inherit: LockInheritance,
    latch: LatchKind,
    victim: VictimPolicy,
    log_buffer: LogBufferKind,
    admission: Admission,
    durability: Option<Durability>,
    isolation: Option<Isolation>,
    snapshots: SnapshotMethod,
    component: TableComponent,
    page_memory: usize,
}

impl System {
    /// These locks over this latch, or over the engine's default.
    pub fn new(locks: Locks, latch: Option<LatchKind>) -> System {
        let usual = Options::default();
        // A named manager is measured as in its document: without admission control.
        let (manager, inherit, admission) = match locks {
            Locks::Manager(manager) => (manager, LockInheritance::Off, Admission::Unlimited),
            Locks::Inheriting(manager) => (manager, LockInheritance::Hot, Admission::Unlimited),
            Locks::Default => (usual.lock_manager, usual.lock_inheritance, usual.admission),
            Locks::None => (
                usual.lock_manager,
                usual.lock_inheritance,
                Admission::Unlimited,
            ),
        };
        System {
            locks,
            manager,
            inherit,
            latch: latch.unwrap_or(usual.latch),
            victim: usual.victim,
            log_buffer: usual.log_buffer,
            admission,
            durability: None,
            isolation: None,
            snapshots: usual.snapshots,
            component: TableComponent::Resident,
            page_memory: usual.page_memory,
        }
    }

    /// The same, with this victim policy.
    pub fn with_victim(self, victim: VictimPolicy) -> System {
        System { victim, ..self }
    }

    /// The same, but every lock on a table is inherited, hot or not; with one client none is hot.
    pub(crate) fn always_inheriting(self) -> System {
        System {
            inherit: LockInheritance::Always,
            ..self
        }
    }

    /// Differences beyond manager and latch: the victim policy and the log buffer, unless they are
    /// the defaults, the admission, if there is one, and paged tables.
    pub fn note(&self) -> String {
        let usual = Options::default();
        let victim = (self.victim != usual.victim).then(|| format!("victim {}", self.victim));
        let buffer = self.log_buffer;
        let buffer = (buffer != usual.log_buffer).then(|| format!("log buffer {buffer}"));
        let admission = self.admission;
        let admission =
            (admission != Admission::Unlimited).then(|| format!("admission {admission}"));
        let durability = self.durability.map(|one| format!("durability {one}"));
        let notes = victim.into_iter().chain(buffer).chain(admission);
        let isolation = self.isolation.map(|one| format!("isolation {one}"));
        let snapshots = (self.snapshots != usual.snapshots).then(|| self.snapshots.to_string());
        let paged = self.is_paged().then(|| "paged tables".to_owned());
        let notes = notes
            .chain(durability)
            .chain(isolation)
            .chain(snapshots)
            .chain(paged);
        let notes: Vec<String> = notes.collect();
        notes.join(", ")
    }

    /// Every combination of these locks and latches, each once; without latches, each manager with
    /// its default.
    pub fn all(locks: &[Locks], latches: &[LatchKind]) -> Vec<System> {
        let choices: Vec<Option<LatchKind>> = match latches {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        };
        let mut systems: Vec<System> = Vec::new();
        for &locks in locks {
            for &latch in &choices {
                let system = System::new(locks, latch);
                if !systems
                    .iter()
                    .any(|other| other.to_string() == system.to_string())
                {
                    systems.push(system);
                }
            }
        }
        systems
    }

    /// Each of `systems` with each of the policies; with the default one if there are none.
    pub fn with_victims(systems: Vec<System>, victims: &[VictimPolicy]) -> Vec<System> {
        if victims.is_empty() {
            return systems;
        }
        let under = |system: System| {
            victims
                .iter()
                .map(move |&victim| system.clone().with_victim(victim))
        };
        systems.into_iter().flat_map(under).collect()
    }

    /// Each of `systems` with each of the log buffers; with the default one if there are none.
    pub fn with_log_buffers(systems: Vec<System>, buffers: &[LogBufferKind]) -> Vec<System> {
        if buffers.is_empty() {
            return systems;
        }
        let over = |system: System| {
            buffers.iter().map(move |&log_buffer| System {
                log_buffer,
                ..system.clone()
            })
        };
        systems.into_iter().flat_map(over).collect()
    }

    /// Each of `systems` with each of these durabilities, which becomes part of its name; all with
    /// that of the run if there are fewer than two.
    pub fn with_durabilities(systems: Vec<System>, durabilities: &[Durability]) -> Vec<System> {
        if durabilities.len() < 2 {
            return systems;
        }
        let with = |system: System| {
            durabilities.iter().map(move |&durability| System {
                durability: Some(durability),
                ..system.clone()
            })
        };
        systems.into_iter().flat_map(with).collect()
    }

    /// Each of `systems` with each of these levels as that of its database, which becomes part of
    /// its name; with the default one if there are none.
    pub fn with_isolations(systems: Vec<System>, levels: &[Isolation]) -> Vec<System> {
        if levels.is_empty() {
            return systems;
        }
        let at = |system: System| {
            levels.iter().map(move |&isolation| System {
                isolation: Some(isolation),
                ..system.clone()
            })
        };
        systems.into_iter().flat_map(at).collect()
    }

    /// Each of `systems` with each of these methods of snapshots; with the default one if there are
    /// none.
    pub fn with_snapshot_methods(systems: Vec<System>, methods: &[SnapshotMethod]) -> Vec<System> {
        if methods.is_empty() {
            return systems;
        }
        let by = |system: System| {
            methods.iter().map(move |&snapshots| System {
                snapshots,
                ..system.clone()
            })
        };
        systems.into_iter().flat_map(by).collect()
    }

    /// Each of `systems` with its tables in each of these components; in memory if there are none.
    /// Pages take at most `page_memory` bytes; the engine's default if that is `None`.
    pub fn with_tables(
        systems: Vec<System>,
        components: &[TableComponent],
        page_memory: Option<usize>,
    ) -> Vec<System> {
        let usual = Options::default().page_memory;
        let page_memory = page_memory.unwrap_or(usual);
        let components = match components {
            [] => &[TableComponent::Resident],
            some => some,
        };
        let with = |system: System| {
            components.iter().map(move |&component| System {
                component,
                page_memory,
                ..system.clone()
            })
        };
        systems.into_iter().flat_map(with).collect()
    }

    /// True if its tables are paged.
    pub fn is_paged(&self) -> bool {
        self.component == TableComponent::Paged
    }

    /// True if it is `other` but for its tables, which may be in the other component.
    pub(crate) fn is_but_for_tables(&self, other: &System) -> bool {
        let moved = System {
            component: other.component,
            ..self.clone()
        };
        moved == *other
    }

    /// Bytes of memory for the pages of its tables; 0 if they are in memory.
    pub fn page_memory(&self) -> u64 {
        match self.is_paged() {
            true => self.page_memory as u64,
            false => 0,
        }
    }

    /// Settings of this system alone, for the records of its points.
    pub fn listed(&self) -> Vec<(&'static str, Value)> {
        let memory = self.is_paged().then_some(self.page_memory);
        let mut listed = vec![
            ("tables", json!(tables_name(self.component))),
            ("page_memory", json!(memory)),
        ];
        let isolation = self.isolation.map(|one| json!(one.to_string()));
        listed.extend(isolation.map(|one| ("isolation", one)));
        listed
    }

    /// Its durability, if that of the run is `usual`.
    pub fn durability(&self, usual: Durability) -> Durability {
        self.durability.unwrap_or(usual)
    }

    /// Each of `systems` with each of these admissions; each with its own if there are none.
    pub fn with_admissions(systems: Vec<System>, admissions: &[Admission]) -> Vec<System> {
        if admissions.is_empty() {
            return systems;
        }
        let with = |system: System| {
            admissions.iter().map(move |&admission| System {
                admission,
                ..system.clone()
            })
        };
        systems.into_iter().flat_map(with).collect()
    }

    /// True if it locks; without locking only one client can run.
    pub fn is_locking(&self) -> bool {
        self.locks != Locks::None
    }

    /// The lock manager's name for results: `none` without locking.
    pub fn manager_name(&self) -> String {
        match (self.is_locking(), self.inherit) {
            (false, _) => "none".to_owned(),
            (true, LockInheritance::Off) => self.manager.to_string(),
            (true, _) => format!("{}{INHERIT}", self.manager),
        }
    }

    /// The latch's name for results: `-` without locking, and for the reference, which has a mutex
    /// of its own.
    pub fn latch_name(&self) -> String {
        let has_one = self.is_locking() && self.manager != LockManagerKind::Reference;
        if has_one {
            self.latch.to_string()
        } else {
            "-".to_owned()
        }
    }

    /// The log buffer's name for results.
    pub fn log_buffer_name(&self) -> String {
        self.log_buffer.to_string()
    }

    /// A system without locking.
    pub fn without_locking() -> System {
        System::new(Locks::None, None)
    }

    /// The lock manager alone, as a database of this configuration has it.
    pub fn manager(&self) -> AnyManager {
        let mut options = foxton_lock::any::Options::default();
        options.kind = self.manager;
        options.inherit = self.inherit;
        options.latch = self.latch;
        options.victim = self.victim;
        options.bucket_count = Options::default().lock_buckets.next_power_of_two();
        AnyManager::new(&options)
    }

    /// The options a database of this configuration is opened with.
    pub fn options(&self, durability: Durability) -> Options {
        let mut options = Options::default();
        options.lock_manager = self.manager;
        options.lock_inheritance = self.inherit;
        options.latch = self.latch;
        options.victim = self.victim;
        options.log_buffer = self.log_buffer;
        options.admission = self.admission;
        options.locking = if self.is_locking() {
            Locking::On
        } else {
            Locking::Off
        };
        options.durability = durability;
        options.isolation = self.isolation.unwrap_or_default();
        options.snapshots = self.snapshots;
        options.component = self.component;
        options.page_memory = self.page_memory;
        options.lock_wait = LOCK_WAIT;
        options
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.latch_name().as_str() {
            "-" => f.write_str(&self.manager_name())?,
            latch => write!(f, "{}/{latch}", self.manager_name())?,
        }
        match self.note().as_str() {
            "" => Ok(()),
            note => write!(f, ", {note}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gives_up_waiting_before_a_run_is_given_up() {
        for locks in Locks::usual() {
            let options = System::new(locks, None).options(Durability::Buffered);
            assert!(options.lock_wait > 4 * crate::bench::runs::GRACE);
        }
    }
    #[test]
    fn components_are_compared_and_say_which_they_are() {
        let components = ["memory", "paged"].map(|name| tables(name).unwrap());
        assert!(tables("disk").unwrap_err().contains("memory, paged"));
        let usual = vec![System::new(Locks::Default, None)];
        assert_eq!(System::with_tables(usual.clone(), &[], None), usual);
        let both = System::with_tables(usual, &components, Some(1 << 20));
        let names: Vec<String> = both.iter().map(System::to_string).collect();
        assert_eq!(names[1], format!("{}, paged tables", names[0]));
        let options = |at: usize| both[at].options(Durability::Sync);
        assert_eq!([0, 1].map(|at| options(at).component), components);
        assert_eq!(options(1).page_memory, 1 << 20);
        let listed = |at: usize| Value::from_iter(both[at].listed());
        assert_eq!(listed(0), json!({"tables": "memory", "page_memory": null}));
        assert_eq!(
            listed(1),
            json!({"tables": "paged", "page_memory": 1 << 20})
        );
        assert_eq!([0, 1].map(|at| both[at].page_memory()), [0, 1 << 20]);
        assert!(both[0] != both[1] && both[0].is_but_for_tables(&both[1]));
        let other = System::new(Locks::None, None);
        assert!(!both[0].is_but_for_tables(&other));
    }

    #[test]
    fn levels_are_those_of_the_databases_and_named() {
        let system = || vec![System::new(Locks::Default, None)];
        assert_eq!(System::with_isolations(system(), &[]), system());
        let levels = [Isolation::Serializable, Isolation::Snapshot];
        let both = System::with_isolations(system(), &levels);
        let of = |system: &System| system.options(Durability::Sync).isolation;
        assert_eq!(both.iter().map(of).collect::<Vec<_>>(), levels);
        assert!(both[1].note().ends_with("isolation snapshot"));
        let listed = Value::from_iter(both[1].listed());
        assert_eq!(listed["isolation"], "snapshot");
        let both = System::with_snapshot_methods(system(), &SnapshotMethod::ALL);
        let of = |system: &System| system.options(Durability::Sync).snapshots;
        assert_eq!(both.iter().map(of).collect::<Vec<_>>(), SnapshotMethod::ALL);
        assert_eq!(both[0], system()[0]);
        assert!(both[1].note().ends_with("read-views"));
    }

    #[test]
    fn durabilities_are_compared_if_there_are_several() {
        let system = || vec![System::new(Locks::Default, None)];
        let one = System::with_durabilities(system(), &[Durability::None]);
        assert_eq!(one, system(), "then it is that of the run");
        let both = [Durability::None, Durability::Buffered];
        let two = System::with_durabilities(system(), &both);
        let of = |system: &System| system.durability(Durability::Sync);
        assert_eq!(two.iter().map(of).collect::<Vec<_>>(), both);
        assert!(two[0].note().contains("durability none"));
        assert_eq!(of(&system()[0]), Durability::Sync);
    }
}
