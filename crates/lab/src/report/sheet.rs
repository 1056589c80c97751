//! A figure or table of a document, and the same experiment here.

use serde_json::Value;

use super::{
    figures::{self, Figure},
    findings::{Block, Findings},
    over_time,
    shape::Shape,
    times,
};
use crate::measure::machine::Machine;

/// One figure: the document's numbers beside ours.
#[derive(Debug, Clone)]
pub struct Sheet {
    /// The figure's name on the command line.
    pub id: &'static str,
    /// Its title.
    pub title: String,
    /// The document, and the place in it.
    pub source: String,
    /// The shape to expect here, in a sentence or two.
    pub expect: String,
    /// The document's claims, and what was measured.
    pub shape: Shape,
    /// Notes for the reader: systems that are not built, how something was measured.
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
    /// The command that repeats it.
    pub command: String,
}

impl Sheet {
    /// Returns the first check that failed in any panel.
    pub fn failure(&self) -> Option<String> {
        self.panels.iter().find_map(Findings::failure)
    }

    /// Returns every table: the document's beside ours, then those of the panels.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        let panels = self.panels.iter().flat_map(|panel| &panel.blocks);
        self.beside.iter().chain(panels)
    }

    /// Returns every picture, its name ending with its panel's.
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
