//! Durability: the changes that survive when the machine stops.

use clap::ValueEnum;

/// Durability of a commit. The same word asks each engine for what comes nearest, and its settings
/// say what that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// For nothing: what a crash of the process loses is the engine's affair.
    None,
    /// Until the changes are with the operating system: they survive the process, not the power.
    Buffered,
    /// Until the changes are on the device.
    Sync,
}

impl Durability {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Durability::None => "none",
            Durability::Buffered => "buffered",
            Durability::Sync => "sync",
        }
    }

    /// Foxton's options with this, and else as they are by default.
    pub(crate) fn options(self) -> foxton::Options {
        let mut options = foxton::Options::default();
        options.durability = match self {
            Durability::None => foxton::Durability::None,
            Durability::Buffered => foxton::Durability::Buffered,
            Durability::Sync => foxton::Durability::Sync,
        };
        options
    }
}
