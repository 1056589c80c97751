//! The claims that several figures make, held against curves.

use crate::{
    measure::curve::Curve,
    report::{findings::Findings, shape::Claim},
};

/// What a manager that does not collapse keeps of its peak at the largest number of clients.
pub(super) const KEEPS: f64 = 0.90;
/// With fewer processors, latches are seldom met held: what falls for them in the documents need
/// not fall.
const FEW_CORES: usize = 8;

/// The curves of this manager, each in whatever else sets it apart.
pub(super) fn of<'a>(panel: &'a Findings, manager: &str) -> Option<&'a Curve> {
    panel
        .curves
        .iter()
        .find(|curve| curve.lock_manager == manager)
}

/// That this one keeps its peak. Nothing is claimed if it was not measured.
pub(super) fn keeps(panel: &Findings, manager: &str, says: &str) -> Option<Claim> {
    let (found, ratio) = rest(panel, manager)?;
    Some(Claim::new(says, found, ratio >= KEEPS))
}

/// That this one falls from its peak; on few cores it need not.
pub(super) fn falls(panel: &Findings, manager: &str, says: &str) -> Option<Claim> {
    let (found, ratio) = rest(panel, manager)?;
    let claim = Claim::new(says, found, ratio < KEEPS);
    Some(where_cores_count(claim, panel.machine.cores))
}

/// A claim that many cores make true, and few cannot show.
pub(super) fn where_cores_count(claim: Claim, cores: usize) -> Claim {
    match cores < FEW_CORES {
        true => claim.or_unseen(&format!("{cores} cores are too few for it")),
        false => claim,
    }
}

fn rest(panel: &Findings, manager: &str) -> Option<(String, f64)> {
    let curve = of(panel, manager)?;
    let ratio = curve.no_collapse_ratio()?;
    let mpl = curve.points.last()?.mpl;
    let found = format!(
        "{} keeps {:.0} % of its peak at {mpl} clients ({})",
        curve.label(),
        ratio * 100.0,
        panel.title
    );
    Some((found, ratio))
}

/// Throughput at the largest number of clients.
pub(super) fn last_tps(curve: &Curve) -> f64 {
    curve
        .points
        .last()
        .map_or(0.0, |point| point.tps().median())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic;

    #[test]
    fn who_falls_and_who_keeps_its_peak_is_told_apart() {
        // In these findings `global` collapses and `bucket` does not.
        let mut panel = synthetic::findings();
        panel.machine.cores = 64;
        let holds = |claim: Option<Claim>| claim.and_then(|claim| claim.holds);
        assert_eq!(holds(falls(&panel, "global", "")), Some(true));
        assert_eq!(holds(keeps(&panel, "global", "")), Some(false));
        assert_eq!(holds(falls(&panel, "bucket", "")), Some(false));
        assert_eq!(holds(keeps(&panel, "bucket", "")), Some(true));
        assert!(keeps(&panel, "staged", "").is_none());
        panel.machine.cores = 2;
        assert_eq!(holds(falls(&panel, "bucket", "")), None);
        assert_eq!(holds(falls(&panel, "global", "")), Some(true));
    }
}
