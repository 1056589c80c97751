//! Common code of long commands: arguments and progress bar.

use indicatif::{ProgressBar, ProgressStyle};
use std::{collections::BTreeMap, env, error::Error, process, str::FromStr};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Arguments of the form `--name value`.
#[derive(Debug)]
pub(crate) struct Arguments(BTreeMap<String, String>);

impl Arguments {
    /// Reads the arguments after the first `skip`. `known` are the names; anything else is refused,
    /// and `--help` shows `help` and ends the program.
    pub(crate) fn read(skip: usize, known: &[&str], help: &str) -> Outcome<Arguments> {
        let mut given = BTreeMap::new();
        let mut arguments = env::args().skip(1 + skip);
        while let Some(argument) = arguments.next() {
            let name = argument.strip_prefix("--").unwrap_or_default();
            if name == "help" || !known.contains(&name) {
                println!("{help}");
                if name == "help" {
                    process::exit(0);
                }
                return Err(format!("unknown argument {argument}").into());
            }
            let value = arguments.next();
            let value = value.ok_or_else(|| format!("{argument} needs a value"))?;
            given.insert(name.to_owned(), value);
        }
        Ok(Arguments(given))
    }

    /// Returns the value of `name`, if it was given.
    pub(crate) fn find<T: FromStr<Err: Error + Send + Sync + 'static>>(
        &self,
        name: &str,
    ) -> Outcome<Option<T>> {
        let parsed = self.0.get(name).map(|value| value.parse()).transpose();
        parsed.map_err(|error| format!("--{name}: {error}").into())
    }

    /// Returns the value of `name`, or the default.
    pub(crate) fn get<T: FromStr<Err: Error + Send + Sync + 'static>>(
        &self,
        name: &str,
        usual: T,
    ) -> Outcome<T> {
        Ok(self.find(name)?.unwrap_or(usual))
    }
}

/// Returns a bar up to `count` things called `what`.
pub(crate) fn bar(count: u64, what: &str) -> Outcome<ProgressBar> {
    let style = format!("{{bar:40}} {{pos}}/{{len}} {what}, {{msg}}, {{eta}} left");
    Ok(ProgressBar::new(count).with_style(ProgressStyle::with_template(&style)?))
}
