//! A real browser, driven by the W3C's WebDriver protocol: chromedriver and Chromium, as Debian has them.
//!
//! The protocol is a handful of JSON calls, so it is spoken here, without a library. Everything waits for what it looks for, with a
//! deadline.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::background::block_on;
use crate::guard::{Guarded, Launch};
use crate::ports::free_port;
use crate::wait::look_until;

/// How long a page, or an element of it, may take.
const SOON: Duration = Duration::from_secs(60);
/// The name of an element's id, as the protocol has it.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Whether a page is looked at in the dark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    Light,
    Dark,
}

/// How wide the window is, in CSS pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 1280.
    Desk,
    /// 400, as a phone.
    Phone,
}

/// A browser with one window. It is gone when dropped.
#[derive(Debug)]
pub struct Browser {
    session: String,
    client: reqwest::Client,
    _driver: Guarded,
    _directory: tempfile::TempDir,
}

impl Browser {
    /// # Panics
    /// When chromedriver or Chromium is not installed: `./x setup` installs them.
    #[track_caller]
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder can be made");
        let port = free_port();
        let driver = Guarded::start(&Launch {
            program: PathBuf::from("chromedriver"),
            arguments: vec![format!("--port={port}")],
            stdout: directory.path().join("driver.out"),
            stderr: directory.path().join("driver.err"),
            ..Launch::default()
        });
        let base = format!("http://127.0.0.1:{port}");
        let ready = look_until(SOON, || {
            crate::http::get(&format!("{base}/status")).ok().filter(|(status, _)| *status == 200)
        });
        assert!(ready.is_some(), "chromedriver did not start: is it installed? ./x setup installs it");
        let client =
            reqwest::Client::builder().no_proxy().timeout(SOON * 2).build().expect("a client can be built");
        let profile = directory.path().join("profile");
        let arguments = [
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--hide-scrollbars".to_owned(),
            "--force-color-profile=srgb".to_owned(),
            format!("--user-data-dir={}", profile.display()),
        ];
        let options = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
        } } });
        let answer = call(&client, reqwest::Method::POST, format!("{base}/session"), Some(options));
        let id = answer["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}")).to_owned();
        let browser =
            Self { session: format!("{base}/session/{id}"), client, _driver: driver, _directory: directory };
        browser.look_as(Theme::Light, Width::Desk);
        browser
    }

    #[track_caller]
    fn post(&self, path: &str, body: Value) -> Value {
        call(&self.client, reqwest::Method::POST, format!("{}{path}", self.session), Some(body))
    }

    #[track_caller]
    fn get(&self, path: &str) -> Value {
        call(&self.client, reqwest::Method::GET, format!("{}{path}", self.session), None)
    }

    /// Opens an address.
    #[track_caller]
    pub fn open(&self, url: &str) {
        self.post("/url", json!({ "url": url }));
    }

    /// The address that is shown.
    #[track_caller]
    pub fn url(&self) -> String {
        self.get("/url").as_str().unwrap_or_default().to_owned()
    }

    /// Whether anything fits the XPath now.
    #[track_caller]
    pub fn has(&self, xpath: &str) -> bool {
        self.find(xpath).is_some()
    }

    fn find(&self, xpath: &str) -> Option<String> {
        let found = self.post("/elements", json!({ "using": "xpath", "value": xpath }));
        found[0][ELEMENT].as_str().map(str::to_owned)
    }

    /// Waits until something fits the XPath.
    ///
    /// # Panics
    /// With the page's text, when nothing ever does.
    #[track_caller]
    pub fn wait_for(&self, xpath: &str) -> String {
        self.wait_at_most(xpath, SOON)
    }

    /// The same, with another deadline.
    #[track_caller]
    pub fn wait_at_most(&self, xpath: &str, deadline: Duration) -> String {
        let found = look_until(deadline, || self.find(xpath));
        found.unwrap_or_else(|| panic!("nothing fits {xpath} at {}:\n{}", self.url(), self.text()))
    }

    /// Waits until the page says this.
    #[track_caller]
    pub fn wait_for_text(&self, text: &str) {
        let said = look_until(SOON, || self.text().contains(text).then_some(()));
        assert!(said.is_some(), "`{text}` is not said at {}:\n{}", self.url(), self.text());
    }

    /// Clicks the first element that fits.
    #[track_caller]
    pub fn click(&self, xpath: &str) {
        let element = self.wait_for(xpath);
        self.post(&format!("/element/{element}/click"), json!({}));
    }

    /// Types into the first element that fits.
    #[track_caller]
    pub fn type_into(&self, xpath: &str, text: &str) {
        let element = self.wait_for(xpath);
        self.post(&format!("/element/{element}/value"), json!({ "text": text }));
    }

    /// What the page says.
    #[track_caller]
    pub fn text(&self) -> String {
        self.run("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Runs a script, whose `return` it answers with; a promise is waited for.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": [] }))
    }

    /// Looks at pages in this light and width from now on.
    #[track_caller]
    pub fn look_as(&self, theme: Theme, width: Width) {
        let scheme = if theme == Theme::Dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }, { "name": "prefers-reduced-motion", "value": "reduce" }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features }));
        let (width, height, mobile) =
            if width == Width::Phone { (400, 860, true) } else { (1280, 860, false) };
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics);
    }

    #[track_caller]
    fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", json!({ "cmd": command, "params": parameters }))
    }

    /// Writes the whole page as a PNG.
    #[track_caller]
    pub fn shoot(&self, file: &Path) {
        let shot = self
            .devtools("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }));
        let bytes = STANDARD.decode(shot["data"].as_str().unwrap_or_default()).expect("a picture is base64");
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).expect("a folder for pictures can be made");
        }
        std::fs::write(file, bytes).expect("a picture can be written");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let (client, session) = (self.client.clone(), self.session.clone());
        // Chromium ends with its session; where that fails, chromedriver's end takes it along.
        drop(block_on(async move { client.delete(session).send().await.map(drop) }));
    }
}

#[track_caller]
fn call(client: &reqwest::Client, method: reqwest::Method, url: String, body: Option<Value>) -> Value {
    let mut request = client.request(method, &url);
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = block_on(async move { request.send().await?.json::<Value>().await });
    let mut answer = answer.unwrap_or_else(|error| panic!("{url}: {error}"));
    let value = answer["value"].take();
    assert!(!value["error"].is_string(), "{url}: {}: {}", value["error"], value["message"]);
    value
}
