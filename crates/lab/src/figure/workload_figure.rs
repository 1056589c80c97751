//! Common parts of the figures of whole workloads: their sweep and their sheet.

use serde_json::{Value, json};

use super::request::Request;
use crate::{
    bench::runs::Runs,
    measure::{curve::Curve, machine::Machine},
    report::{
        findings::{Block, Findings},
        shape::Shape,
        sheet::Sheet,
    },
    system::System,
};

/// A value for the brief form, the quick one and the full one.
pub(super) type ByForm<T> = [T; 3];

/// The value for this request.
pub(super) fn by_form<T: Copy>(request: &Request, [brief, quick, full]: ByForm<T>) -> T {
    match (request.full, request.brief) {
        (true, _) => full,
        (false, true) => brief,
        (false, false) => quick,
    }
}

/// The sweep: these clients and milliseconds for each point, unless the request has others.
pub(super) fn sweep(
    request: &Request,
    systems: Vec<System>,
    clients: ByForm<&[u32]>,
    milliseconds: ByForm<u64>,
) -> Runs {
    let mut runs = request.sweep(systems, 1);
    if request.mpls.is_empty() {
        runs.mpls = by_form(request, clients).to_vec();
    }
    runs.window = request.each(milliseconds);
    runs
}

/// A figure of a whole workload, to become a sheet.
pub(super) struct WorkloadFigure {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) source: String,
    pub(super) expect: &'static str,
    pub(super) shape: Shape,
    pub(super) notes: Vec<String>,
    pub(super) beside: Vec<Block>,
    pub(super) panels: Vec<Findings>,
}

impl WorkloadFigure {
    /// The sheet of this figure.
    pub(super) fn sheet(self, request: &Request, runs: &Runs) -> Sheet {
        let mut settings: Vec<(&'static str, Value)> = vec![("form", json!(request.form()))];
        settings.extend(runs.listed());
        Sheet {
            id: self.id,
            title: self.title.to_owned(),
            source: self.source,
            expect: self.expect.to_owned(),
            shape: self.shape,
            notes: self.notes,
            beside: self.beside,
            pictures: Vec::new(),
            panels: self.panels,
            settings,
            machine: Machine::here(),
            command: request.command.clone(),
        }
    }
}

/// Returns the highest median of one curve ÷ that of another.
pub(super) fn peak_ratio(one: &Curve, other: &Curve) -> f64 {
    let peak = |curve: &Curve| curve.peak().map_or(0.0, |point| point.tps().median());
    peak(one) / peak(other).max(1e-9)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::system::Locks;

    fn request(full: bool, brief: bool) -> Request {
        Request {
            full,
            brief,
            ..Request::default()
        }
    }

    #[test]
    fn each_form_has_its_clients_and_its_window_unless_the_request_has_others() {
        let clients: ByForm<&[u32]> = [&[1], &[1, 2], &[1, 2, 4]];
        let sweep = |request: &Request| {
            let systems = System::all(&[Locks::Default], &[]);
            let runs = sweep(request, systems, clients, [10, 20, 30]);
            (runs.mpls.len() as u32, runs.window.as_millis() as u32)
        };
        let forms = [(false, true), (false, false), (true, false)];
        for ((full, brief), at) in forms.into_iter().zip(1..) {
            let mut request = request(full, brief);
            assert_eq!(by_form(&request, [1, 2, 3]), at);
            assert_eq!(sweep(&request), (at, 10 * at));
            request.mpls = vec![7; 5];
            request.window = Some(Duration::from_millis(99));
            assert_eq!(sweep(&request), (5, 99));
        }
    }
}
