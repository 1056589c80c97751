//! Counts of critical sections, for people and for programs.

use foxton_sync::site::{Component, Pattern};
use serde_json::{Map, Value, json};

use super::{Counted, Settings, design::DEFAULT};
use crate::{
    measure::machine::Machine,
    report::{
        bars::{Bar, Bars, Fill, Part, amount},
        figures::{Figure, Picture},
        findings::Block,
        shape::Shape,
        sheet::Sheet,
        table::Table,
    },
};

/// Patterns in the order they are drawn: unscalable ones first, so that their lengths can be
/// compared.
const DRAWN: [(Pattern, Fill); 3] = [
    (Pattern::Unbounded, Fill::Solid),
    (Pattern::Cooperative, Fill::Striped),
    (Pattern::Fixed, Fill::Light),
];

/// All counts as a page.
pub fn sheet(settings: &Settings, counted: &[Counted], command: &str) -> Sheet {
    Sheet {
        id: "critical-sections",
        title: "Critical sections of one transaction".to_owned(),
        source: "document 002, \"Eliminating unscalable communication in transaction processing\", \
                 Figures 3 and 11, sections 3.1 and 8.2"
            .to_owned(),
        expect: "Fewer unbounded critical sections from design to design: inheritance removes those of locks \
                 on tables, combined inserts those of the log, remembered locks those of rows that are only \
                 read."
            .to_owned(),
        shape: Shape::default(),
        notes: vec![NOTE.to_owned()],
        beside: blocks(counted),
        pictures: pictures(counted),
        panels: Vec::new(),
        settings: listed(settings),
        machine: Machine::here(),
        command: command.to_owned(),
    }
}

const NOTE: &str = "A critical section is a latch acquired, a read-modify-write of a shared word, or a queue. \
    Unbounded: any number of threads can contend there. Fixed: a number that does not grow with the \
    machine. Cooperative: contending threads combine their work. The counts are those of the clients' own \
    threads. Reading rows and their index writes nothing shared, so it counts nothing. The operating system \
    and the memory allocator are not counted.";

/// The settings for results.
pub fn listed(settings: &Settings) -> Vec<(&'static str, Value)> {
    vec![
        ("executions", json!(settings.executions)),
        ("rows", json!(settings.rows)),
        ("durability", json!(settings.durability.to_string())),
        ("isolation", json!("serializable")),
        ("seed", json!(settings.seed)),
    ]
}

/// The transactions, in the order in which they were counted.
pub fn transactions(counted: &[Counted]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in counted.iter().map(Counted::name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A picture for each transaction, with the fewest clients.
pub fn pictures(counted: &[Counted]) -> Vec<Figure> {
    let least = counted.iter().map(|one| one.mpl).min();
    let picture = |transaction: String| {
        let these = counted.iter().filter(|one| one.name() == transaction);
        let these: Vec<&Counted> = these.filter(|one| Some(one.mpl) == least).collect();
        let words: Vec<&str> = transaction.split(' ').collect();
        Figure {
            name: format!("critical-sections-{}", words.join("-")),
            chart: Picture::Bars(bars(&transaction, &these)),
        }
    };
    transactions(counted).into_iter().map(picture).collect()
}

fn bars(transaction: &str, counted: &[&Counted]) -> Bars {
    let bar = |one: &&Counted| {
        let part = |(pattern, fill): (Pattern, Fill)| {
            Component::ALL.map(|component| Part {
                colour: component as usize,
                fill,
                value: one.own.of(component, pattern),
            })
        };
        Bar {
            label: format!("{}: {}", one.design.name, one.design.is),
            parts: DRAWN.into_iter().flat_map(part).collect(),
        }
    };
    let executions = counted.first().map_or(0, |one| one.executions);
    let fills = DRAWN.into_iter();
    Bars {
        title: format!("Critical sections: {transaction}"),
        subtitle: format!(
            "average of {executions} commits; the number is that of unbounded ones of all"
        ),
        colours: Component::ALL
            .map(|component| component.to_string())
            .to_vec(),
        fills: fills
            .map(|(pattern, fill)| (fill, pattern.to_string()))
            .collect(),
        bars: counted.iter().map(bar).collect(),
    }
}

/// The tables: all designs, then the critical sections that the default keeps.
pub fn blocks(counted: &[Counted]) -> Vec<Block> {
    let mut blocks = vec![designs(counted)];
    let remains = remains(counted);
    if !remains.is_empty() {
        blocks.push(Block {
            title: "Critical sections of the default".to_owned(),
            note: "Each critical section that a transaction passes, and how often on average."
                .to_owned(),
            table: remains,
        });
    }
    blocks
}

fn designs(counted: &[Counted]) -> Block {
    let mut table = Table::new([
        "transaction",
        "design",
        "clients",
        "all",
        "unbounded",
        "cooperative",
        "fixed",
        "components of the unbounded",
        "by the engine",
        "repeated",
        "rolled back",
    ]);
    for transaction in transactions(counted) {
        if !table.is_empty() {
            table.gap();
        }
        for one in counted.iter().filter(|one| one.name() == transaction) {
            let of = |pattern| amount(one.own.of_pattern(pattern));
            table.row([
                transaction.clone(),
                one.design.name.to_owned(),
                one.mpl.to_string(),
                amount(one.own.total()),
                of(Pattern::Unbounded),
                of(Pattern::Cooperative),
                of(Pattern::Fixed),
                by_component(one, Pattern::Unbounded),
                amount(one.background.total()),
                one.repeated.to_string(),
                one.refused.to_string(),
            ]);
        }
    }
    Block {
        title: "Critical sections of one transaction, on average".to_owned(),
        note: "By the engine: those of the engine's own threads meanwhile, on average for each transaction, \
               and in no other column. Averages are over the transactions that committed. Repeated: further \
               attempts that ended with a deadlock or a timeout; rolled back: those that the workload \
               undoes. Their critical sections count for those that committed."
            .to_owned(),
        table,
    }
}

fn by_component(one: &Counted, pattern: Pattern) -> String {
    let components = Component::ALL.into_iter();
    let parts = components.filter_map(|component| {
        let passed = one.own.of(component, pattern);
        (passed >= 0.05).then(|| format!("{component} {}", amount(passed)))
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        "-".to_owned()
    } else {
        parts.join(", ")
    }
}

fn remains(counted: &[Counted]) -> Table {
    let mut table = Table::new(["transaction", "place", "component", "pattern", "passed"]);
    let least = counted.iter().map(|one| one.mpl).min();
    let these = counted.iter().filter(|one| one.design.name == DEFAULT);
    for one in these.filter(|one| Some(one.mpl) == least) {
        if !table.is_empty() {
            table.gap();
        }
        for (site, passed) in one.own.sites() {
            table.row([
                one.name(),
                site.name.to_owned(),
                site.component.to_string(),
                site.pattern.to_string(),
                format!("{passed:.3}"),
            ]);
        }
    }
    table
}

/// One object for each design and transaction, with the fewest clients; results with more clients
/// are nested in it.
pub fn records(settings: &Settings, counted: &[Counted], command: &str) -> Vec<Map<String, Value>> {
    let machine = Machine::here().to_json();
    let mut records: Vec<(&Counted, Map<String, Value>, Vec<Value>)> = Vec::new();
    for one in counted {
        let same =
            |other: &&Counted| other.design.name == one.design.name && other.name() == one.name();
        match records.iter_mut().find(|(first, ..)| same(first)) {
            Some((_, _, further)) => further.push(Value::Object(passages(one))),
            None => records.push((one, record(one), Vec::new())),
        }
    }
    let listed: Map<String, Value> = listed(settings)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let finish = |(_, mut record, further): (&Counted, Map<String, Value>, Vec<Value>)| {
        record.insert("with_more_clients".to_owned(), Value::Array(further));
        record.insert("settings".to_owned(), Value::Object(listed.clone()));
        record.insert("machine".to_owned(), machine.clone());
        record.insert("command".to_owned(), json!(command));
        record
    };
    records.into_iter().map(finish).collect()
}

fn record(one: &Counted) -> Map<String, Value> {
    let system = &one.design.system;
    let mut record = Map::new();
    let mut put = |name: &str, value: Value| record.insert(name.to_owned(), value);
    put("workload", json!(one.workload.to_string()));
    put("design", json!(one.design.name));
    put("design_is", json!(one.design.is));
    put("transaction", json!(one.transaction));
    put("lock_manager", json!(system.manager_name()));
    put("latch", json!(system.latch_name()));
    put("log_buffer", json!(system.log_buffer_name()));
    record.extend(passages(one));
    record
}

fn passages(one: &Counted) -> Map<String, Value> {
    let mut record = Map::new();
    record.insert("mpl".to_owned(), json!(one.mpl));
    record.insert("executions".to_owned(), json!(one.executions));
    record.insert("repeated".to_owned(), json!(one.repeated));
    record.insert("rolled_back".to_owned(), json!(one.refused));
    record.extend(one.own.to_json());
    let background = one.background.to_json();
    record.insert("by_the_engine".to_owned(), Value::Object(background));
    record
}
