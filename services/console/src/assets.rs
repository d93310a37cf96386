//! Style sheet, script and mark, compiled in. Their addresses carry a hash of what they hold, so browsers keep them for good.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;

use crate::failure::{Answer, Failure};

struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

const ASSETS: [Asset; 3] = [
    Asset {
        name: "console.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("../assets/console.css"),
    },
    Asset {
        name: "console.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("../assets/console.js"),
    },
    Asset { name: "mark.svg", kind: "image/svg+xml", text: include_str!("../assets/mark.svg") },
];

/// Changes with any of them.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = blake3::Hasher::new();
    for asset in &ASSETS {
        hash.update(asset.text.as_bytes());
    }
    hash.finalize().to_hex().chars().take(10).collect()
});

/// The address of a file.
pub(crate) fn address(name: &str) -> String {
    format!("/assets/{}.{name}", *VERSION)
}

pub(crate) async fn serve(Path(file): Path<String>) -> Answer {
    let wanted = |asset: &&Asset| {
        file.strip_prefix(VERSION.as_str()).and_then(|rest| rest.strip_prefix('.')) == Some(asset.name)
    };
    let asset = ASSETS.iter().find(wanted).ok_or_else(Failure::no_page)?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(asset.kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
    ];
    Ok((headers, asset.text).into_response())
}

/// For whoever watches the process: it answers.
pub(crate) async fn alive() -> &'static str {
    "ok\n"
}
