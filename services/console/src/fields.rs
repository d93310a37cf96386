//! Names with values: of an address's query, and of a form.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::failure::Failure;
use crate::inbox::{Filter, Selection};

/// The fields of a filter that may stand there several times.
pub(crate) const LISTS: [&str; 8] =
    ["state", "class", "tier", "kind", "group", "schema", "handler", "source"];

/// The other fields of a filter.
pub(crate) const SPAN: [&str; 3] = ["since", "until", "q"];

/// Names with values, in the order that they were sent; a name may stand there several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(crate) fn parse(encoded: &[u8]) -> Self {
        Self(form_urlencoded::parse(encoded).into_owned().collect())
    }

    /// The first value of a name, unless it is empty: an input that nobody filled in sends an empty one.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// The first value of a name as it was sent.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// All values of a name but the empty ones.
    pub(crate) fn all(&self, name: &str) -> Vec<String> {
        let values = self.0.iter().filter(|(found, _)| found == name).map(|(_, value)| value.trim());
        values.filter(|value| !value.is_empty()).map(str::to_owned).collect()
    }

    /// Every name, as often as it stands there.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// A number, if the field is there.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let refuse =
            |_| Failure::bad_request(format!("`{name}` is `{text}`, which is not a number of its kind"));
        text.parse().map(Some).map_err(refuse)
    }

    /// A time in milliseconds since the epoch, if the field is there.
    fn time(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            Failure::bad_request(format!(
                "`{name}` is `{text}`: give a time as milliseconds since 1970 (UTC), such as 1764389445000"
            ))
        })
    }

    /// The fields that a filter is made of.
    pub(crate) fn filter(&self) -> Result<Filter, Failure> {
        Ok(Filter {
            states: self.all("state"),
            classes: self.all("class"),
            tiers: self.all("tier"),
            kinds: self.all("kind"),
            fingerprints: self.all("group"),
            schemas: self.all("schema"),
            handlers: self.all("handler"),
            sources: self.all("source"),
            since: self.time("since")?,
            until: self.time("until")?,
            text: self.get("q").map(str::to_owned),
        })
    }

    /// Items that were ticked, or all that fit the filter.
    pub(crate) fn selection(&self) -> Result<Selection, Failure> {
        Ok(Selection { items: self.all("item"), filter: self.filter()? })
    }
}

/// The fields of a filter, as a query or a form has them.
pub(crate) fn of_filter(filter: &Filter) -> Vec<(&'static str, String)> {
    let lists = [
        ("state", &filter.states),
        ("class", &filter.classes),
        ("tier", &filter.tiers),
        ("kind", &filter.kinds),
        ("group", &filter.fingerprints),
        ("schema", &filter.schemas),
        ("handler", &filter.handlers),
        ("source", &filter.sources),
    ];
    let listed =
        lists.into_iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value.clone())));
    let since = filter.since.map(|time| ("since", time.to_string()));
    let until = filter.until.map(|time| ("until", time.to_string()));
    let text = filter.text.clone().map(|text| ("q", text));
    listed.chain(since).chain(until).chain(text).collect()
}

/// An address on this console, with these fields as its query.
pub(crate) fn address<'a>(path: &str, fields: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in fields {
        query.append_pair(name, &value);
    }
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// The query of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(pub(crate) Fields);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(Fields::parse(parts.uri.query().unwrap_or_default().as_bytes())))
    }
}

/// The form of a request, which the gate has read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Form(pub(crate) Fields);

impl<S: Sync> FromRequestParts<S> for Form {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_reads_what_it_writes_into_an_address() {
        let sent = "q=a+%26+b&state=open&state=failed-again&class=-&group=00ff&since=12&kind=&item=x";
        let filter = Fields::parse(sent.as_bytes()).filter().unwrap();
        assert_eq!(filter.states, ["open", "failed-again"]);
        assert!(filter.kinds.is_empty());
        let written = address("/items", of_filter(&filter));
        let read = Fields::parse(written.strip_prefix("/items?").unwrap().as_bytes()).filter().unwrap();
        assert_eq!(read, filter);
        assert!(Fields::parse(b"since=soon").filter().is_err());
    }
}
