//! A figure or table of a document, and what the same experiment gives here.

use serde_json::Value;

use super::{
    figures::{self, Figure},
    findings::{Block, Findings},
    over_time,
    shape::Shape,
    times,
};
use crate::measure::machine::Machine;

/// One figure: what the document shows, and ours beside it.
#[derive(Debug, Clone)]
pub struct Sheet {
    /// How the figure is called on the command line.
    pub id: &'static str,
    /// What it shows.
    pub title: String,
    /// The document and the place in it.
    pub source: String,
    /// Which shape to expect here, in a sentence or two.
    pub expect: String,
    /// Whether that was found: what the document claims, and what was measured.
    pub shape: Shape,
    /// What else a reader has to know: what is not built, how something was measured.
    pub notes: Vec<String>,
    /// The document's numbers beside ours.
    pub beside: Vec<Block>,
    /// Pictures beside those of the panels.
    pub pictures: Vec<Figure>,
    /// The experiments, one for each part of the figure.
    pub panels: Vec<Findings>,
    /// Every setting that matters.
    pub settings: Vec<(&'static str, Value)>,
    /// The machine and the versions.
    pub machine: Machine,
    /// The command that does it again.
    pub command: String,
}

impl Sheet {
    /// The first check that failed in any panel.
    pub fn failure(&self) -> Option<String> {
        self.panels.iter().find_map(Findings::failure)
    }

    /// Every table: the document's beside ours, then those of the panels.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        let panels = self.panels.iter().flat_map(|panel| &panel.blocks);
        self.beside.iter().chain(panels)
    }

    /// Every picture, named apart by its panel.
    pub fn all_pictures(&self) -> Vec<Figure> {
        let mut all = self.pictures.clone();
        for panel in &self.panels {
            all.extend(
                figures::of(panel)
                    .into_iter()
                    .chain(over_time::watched(panel))
                    .chain(times::picture(panel))
                    .map(|figure| Figure {
                        name: format!("{}-{}", figure.name, panel.variant),
                        ..figure
                    }),
            );
        }
        all
    }
}
