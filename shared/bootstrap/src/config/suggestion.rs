//! The nearest known name to a misspelt one.

/// "did you mean …" if a candidate is near, else the list of what is known.
pub fn suggest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let mut candidates: Vec<&str> = candidates.into_iter().collect();
    candidates.sort_unstable();
    candidates.dedup();
    if let Some(near) = nearest(name, &candidates) {
        return format!("did you mean `{near}`?");
    }
    match candidates.as_slice() {
        [] => "remove it".to_owned(),
        known => format!("known here: {}", known.join(", ")),
    }
}

/// The candidate that a person who typed `name` most likely meant.
pub(crate) fn nearest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let typed = fold(name);
    // A third of the name may differ: enough for slips, too little to propose an unrelated word.
    let tolerance = (name.chars().count() / 3).clamp(1, 5);
    candidates
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(&typed, &fold(candidate)), *candidate))
        .filter(|(distance, _)| *distance <= tolerance)
        .min()
        .map(|(_, candidate)| candidate)
}

fn fold(name: &str) -> String {
    name.to_lowercase().replace(['-', '.'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_gets_the_name_that_was_meant() {
        assert_eq!(suggest("time_limt", ["time_limit", "tier"]), "did you mean `time_limit`?");
        assert_eq!(suggest("time-limit", ["time_limit", "tier"]), "did you mean `time_limit`?");
    }

    #[test]
    fn an_unrelated_name_gets_the_list_of_known_ones() {
        assert_eq!(suggest("colour", ["tier", "source"]), "known here: source, tier");
    }
}
