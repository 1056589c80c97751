//! Critical sections that one transaction passes: averages over many.

use foxton_sync::site::{AccountSummary, Component, Pattern, Site};
use serde_json::{Map, Value, json};

/// Average number of critical sections of one transaction.
#[derive(Debug, Clone, Default)]
pub struct Anatomy {
    averages: [[f64; Pattern::ALL.len()]; Component::ALL.len()],
    sites: Vec<(&'static Site, f64)>,
}

impl Anatomy {
    /// The averages of `executions` transactions that passed all these.
    pub fn new(passed: &AccountSummary, executions: u64) -> Anatomy {
        let each = |count: u64| count as f64 / executions.max(1) as f64;
        let of = |component| Pattern::ALL.map(|pattern| each(passed.count(component, pattern)));
        let sites = passed.sites().iter();
        Anatomy {
            averages: Component::ALL.map(of),
            sites: sites.map(|one| (one.site, each(one.count))).collect(),
        }
    }

    /// Critical sections of one component and pattern.
    pub fn of(&self, component: Component, pattern: Pattern) -> f64 {
        self.averages[component as usize][pattern as usize]
    }

    /// Critical sections of one pattern.
    pub fn of_pattern(&self, pattern: Pattern) -> f64 {
        let of = |component| self.of(component, pattern);
        Component::ALL.into_iter().map(of).sum()
    }

    /// All of them.
    pub fn total(&self) -> f64 {
        let of = |pattern| self.of_pattern(pattern);
        Pattern::ALL.into_iter().map(of).sum()
    }

    /// Each site that was passed, the most frequent first.
    pub fn sites(&self) -> &[(&'static Site, f64)] {
        &self.sites
    }

    /// The averages for programs: by pattern, by component and pattern, and by site.
    pub fn to_json(&self) -> Map<String, Value> {
        let by_pattern = |of: &dyn Fn(Pattern) -> f64| -> Map<String, Value> {
            let patterns = Pattern::ALL.into_iter();
            patterns
                .map(|pattern| (pattern.to_string(), rounded(of(pattern))))
                .collect()
        };
        let mut record = by_pattern(&|pattern| self.of_pattern(pattern));
        record.insert("total".to_owned(), rounded(self.total()));
        let components: Map<String, Value> = Component::ALL
            .into_iter()
            .map(|component| {
                let patterns = by_pattern(&|pattern| self.of(component, pattern));
                (component.to_string(), Value::Object(patterns))
            })
            .collect();
        record.insert("components".to_owned(), Value::Object(components));
        let site = |(site, average): &(&'static Site, f64)| {
            json!({"site": site.name, "component": site.component.to_string(),
                   "pattern": site.pattern.to_string(), "average": rounded(*average)})
        };
        let sites = self.sites.iter().map(site).collect();
        record.insert("sites".to_owned(), Value::Array(sites));
        record
    }
}

fn rounded(value: f64) -> Value {
    json!((value * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foxton_sync::{site::COUNTING, worker::Workers};

    static LOCK: Site = Site::new(Component::Lock, Pattern::Unbounded, "a lock");
    static LOG: Site = Site::new(Component::Log, Pattern::Cooperative, "a log");

    #[test]
    fn averages_add_up() {
        let workers = Workers::new();
        let worker = workers.worker();
        let before = workers.account();
        worker.account().passed_many(&LOCK, 30);
        worker.account().passed_many(&LOG, 5);
        let anatomy = Anatomy::new(&workers.account().since(&before), 10);
        let expected = if COUNTING { [3.0, 0.5] } else { [0.0; 2] };
        assert_eq!(
            [
                anatomy.of(Component::Lock, Pattern::Unbounded),
                anatomy.of_pattern(Pattern::Cooperative)
            ],
            expected
        );
        assert_eq!(anatomy.total(), expected.iter().sum::<f64>());
        let record = anatomy.to_json();
        assert_eq!(record["unbounded"], json!(expected[0]));
        assert_eq!(
            record["components"]["log"]["cooperative"],
            json!(expected[1])
        );
    }
}
