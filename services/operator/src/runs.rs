//! Runs: what was ordered together.

use tidegate_domain::inbox::RampLimits;

/// A ramp's limits, for a person and for the index.
pub(crate) fn ramp_text(ramp: &RampLimits) -> String {
    let RampLimits { first, factor, cap, failures, timeout } = ramp;
    format!("first={first} factor={factor} cap={cap} failures={failures} timeout={}", timeout.as_millis())
}

/// The limits that stand in the index.
pub(crate) fn ramp_of(text: &str) -> Option<RampLimits> {
    let value = |name: &str| {
        text.split(' ').find_map(|pair| pair.split_once('=').filter(|(found, _)| *found == name)).map(|(_, value)| value)
    };
    Some(RampLimits {
        first: value("first")?.parse().ok()?,
        factor: value("factor")?.parse().ok()?,
        cap: value("cap")?.parse().ok()?,
        failures: value("failures")?.parse().ok()?,
        timeout: std::time::Duration::from_millis(value("timeout")?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_is_read_back_from_its_text() {
        for ramp in [RampLimits::CANARY, RampLimits::ALL_AT_ONCE] {
            assert_eq!(ramp_of(&ramp_text(&ramp)), Some(ramp));
        }
    }
}
