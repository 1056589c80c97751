//! Claims that several figures make, judged by curves.

use crate::{
    measure::curve::Curve,
    report::{findings::Findings, shape::Claim},
};

/// Share of its peak that a manager without collapse keeps at the largest number of clients.
pub(super) const KEEPS: f64 = 0.90;
/// With fewer processors, threads seldom find a latch held, so curves that fall for latches in the
/// documents need not fall.
const FEW_CORES: usize = 8;

/// Returns the first curve of this manager.
pub(super) fn curve_of<'a>(panel: &'a Findings, manager: &str) -> Option<&'a Curve> {
    panel
        .curves
        .iter()
        .find(|curve| curve.lock_manager == manager)
}

/// Returns the first curve with these words in its note.
pub(super) fn noted<'a>(panel: &'a Findings, words: &str) -> Option<&'a Curve> {
    panel.curves.iter().find(|curve| curve.has_note(words))
}

/// The claim that this manager keeps its peak; `None` if it was not measured.
pub(super) fn keeps(panel: &Findings, manager: &str, says: &str) -> Option<Claim> {
    curve_keeps(panel, curve_of(panel, manager)?, says)
}

/// The same of a curve.
pub(super) fn curve_keeps(panel: &Findings, curve: &Curve, says: &str) -> Option<Claim> {
    let (found, ratio) = kept_share(panel, curve)?;
    Some(Claim::new(says, found, at_least(KEEPS), ratio >= KEEPS))
}

/// The claim that this manager falls from its peak; on few cores it need not.
pub(super) fn falls(panel: &Findings, manager: &str, says: &str) -> Option<Claim> {
    curve_falls(panel, curve_of(panel, manager)?, says)
}

/// The same of a curve.
pub(super) fn curve_falls(panel: &Findings, curve: &Curve, says: &str) -> Option<Claim> {
    let (found, ratio) = kept_share(panel, curve)?;
    let claim = Claim::new(says, found, below(KEEPS), ratio < KEEPS);
    Some(where_cores_count(claim, panel.machine.cores))
}
/// The bound `at least 90 %` of this share.
pub(super) fn at_least(share: f64) -> String {
    format!("at least {:.0} %", share * 100.0)
}

/// The bound `below 90 %` of this share.
pub(super) fn below(share: f64) -> String {
    format!("below {:.0} %", share * 100.0)
}
/// A claim that many cores make true and few cannot show.
pub(super) fn where_cores_count(claim: Claim, cores: usize) -> Claim {
    match cores < FEW_CORES {
        true => claim.or_not_judged(&format!("{cores} cores are too few to tell")),
        false => claim,
    }
}

/// The share of its peak that a curve keeps at the most clients, in words and as a number.
fn kept_share(panel: &Findings, curve: &Curve) -> Option<(String, f64)> {
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
    fn managers_that_fall_and_managers_that_keep_their_peak_are_told_apart() {
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
