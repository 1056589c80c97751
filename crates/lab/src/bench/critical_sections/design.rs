//! Designs of the engine whose critical sections are compared.

use foxton::{LatchKind, LockManagerKind, LogBufferKind};

use crate::system::{Locks, System};

/// One design: a configuration of the engine that the literature argues for or against.
#[derive(Debug, Clone)]
pub struct Design {
    /// Its name in results.
    pub name: &'static str,
    /// A short description.
    pub is: &'static str,
    /// The configuration.
    pub system: System,
}

impl Design {
    /// All designs that are built, from the least scalable to the default.
    pub fn all() -> Vec<Design> {
        use LockManagerKind::{Bucket, Direct, Global, Sharded, Staged};
        use LogBufferKind::{Baseline, Hybrid};
        let over = |locks, latch, buffer| {
            let system = System::new(locks, latch);
            System::with_log_buffers(vec![system], &[buffer]).remove(0)
        };
        let queue = Some(LatchKind::Queue);
        let design = |name, is, system| Design { name, is, system };
        let manager = Locks::Manager;
        vec![
            design(
                "global",
                "one queue latch over all locks, one over the log",
                over(manager(Global), queue, Baseline),
            ),
            design(
                "baseline",
                "a queue latch for each bucket of locks, one over the log",
                over(manager(Bucket), queue, Baseline),
            ),
            design(
                "inheritance",
                "the same, and the next transaction inherits locks on tables",
                over(Locks::Inheriting(Bucket), queue, Baseline).always_inheriting(),
            ),
            design(
                "consolidated",
                "the same, and threads that contend for the log insert together",
                over(Locks::Inheriting(Bucket), queue, Hybrid).always_inheriting(),
            ),
            design(
                "staged",
                "locks without latches; threads that contend for the log insert together",
                over(manager(Staged), None, Hybrid),
            ),
            design(
                "sharded",
                "two levels of latches over locks; threads that contend for the log insert together",
                over(manager(Sharded), None, Hybrid),
            ),
            design(
                "direct",
                "locks are remembered until there is a conflict; threads that contend for the log insert together",
                over(manager(Direct), None, Hybrid),
            ),
            design(
                DEFAULT,
                "the engine's default configuration",
                System::new(Locks::Default, None),
            ),
        ]
    }

    /// Returns the design of this name.
    ///
    /// # Errors
    ///
    /// If there is none; the text lists all names.
    pub fn find(name: &str) -> Result<Design, String> {
        let all = Design::all();
        let names: Vec<&str> = all.iter().map(|design| design.name).collect();
        let names = names.join(", ");
        let found = all.into_iter().find(|design| design.name == name);
        found.ok_or_else(|| format!("\"{name}\" is not a design; choose one of {names}"))
    }
}

/// The name of the design that is the default.
pub const DEFAULT: &str = "default";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name_and_a_wrong_name_is_answered_with_all() {
        for design in Design::all() {
            assert_eq!(
                Design::find(design.name).map(|found| found.system),
                Ok(design.system)
            );
        }
        let error = Design::find("oldest").map(|found| found.name).unwrap_err();
        assert!(error.contains("baseline") && error.contains(DEFAULT));
    }
}
