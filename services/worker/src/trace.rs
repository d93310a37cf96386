//! W3C trace context (<https://www.w3.org/TR/trace-context/>): a job continues the trace of its event.

use rand::Rng;

/// The value to send on: the same trace and flags, with a span of our own. `None` where the event has no valid one.
pub(crate) fn continued(traceparent: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(traceparent).ok()?;
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let valid = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
    let zero = |part: &str| part.bytes().all(|b| b == b'0');
    if !valid || zero(trace) || zero(span) {
        return None;
    }
    let own: u64 = rand::rng().random_range(1..=u64::MAX);
    Some(format!("00-{trace}-{own:016x}-{flags}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_goes_on_with_a_span_of_its_own() {
        let before = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let after = continued(before.as_bytes()).unwrap();
        assert_eq!((&after[..36], &after[52..]), (&before[..36], &before[52..]));
        assert_ne!(&after[36..52], &before[36..52]);
    }

    #[test]
    fn what_is_no_trace_context_is_not_sent_on() {
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "\r\nX: y",
        ] {
            assert_eq!(continued(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
