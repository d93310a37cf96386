/// So many of them, in words that fit: `1 event`, `2 events`.
pub fn counted(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one_and_others_are_some() {
        let told = [0, 1, 2].map(|count| counted(count, "item", "items"));
        assert_eq!(told, ["0 items", "1 item", "2 items"]);
    }
}
