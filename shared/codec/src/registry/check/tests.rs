use super::in_protocol;
use crate::registry::tests::{Answered, Stub, deserted, impatient, settings, status};
use crate::{RegistryAuth, RegistryFault, RegistrySettings, SchemaRegistry, Weight};

fn page(code: u16) -> Answered {
    Answered::With(code, "<html>404 page not found</html>".to_owned())
}

fn list() -> Answered {
    Answered::With(200, r#"["orders-value"]"#.to_owned())
}

fn user() -> RegistryAuth {
    RegistryAuth::Basic { user: "me".to_owned(), password: "hidden".to_owned() }
}

/// The address of a server that redirects to what is made of that address.
async fn redirecting(status: u16, location: impl Fn(&str) -> String) -> String {
    let stub = Stub::default();
    let url = stub.start().await;
    let url = url.trim_end_matches('/');
    let _ = stub.on("subjects", [Answered::To(status, location(url))]);
    url.to_owned()
}

async fn checked(urls: Vec<String>) -> Result<(), RegistryFault> {
    checked_as(RegistryAuth::None, urls).await
}

async fn checked_as(auth: RegistryAuth, urls: Vec<String>) -> Result<(), RegistryFault> {
    let settings = RegistrySettings { auth, ..settings(urls) };
    SchemaRegistry::new(&settings).expect("a client").check(&["orders-value".to_owned()]).await
}

/// What is wrong when `/subjects` is answered so, and where it was asked.
async fn fault(subjects: Answered) -> (RegistryFault, String) {
    let url = Stub::default().on("subjects", [subjects]).start().await;
    (checked(vec![url.clone()]).await.expect_err("it is no registry"), url.trim_end_matches('/').to_owned())
}

#[tokio::test]
async fn a_list_of_subjects_is_a_registrys_however_long_and_even_if_it_is_empty() {
    let long = format!("[{}\"last\"]", "\"some-subject-value\",".repeat(100_000));
    for list in ["[]".to_owned(), " [\"a\"]".to_owned(), long] {
        let url = Stub::default().on("subjects", [Answered::With(200, list)]).start().await;
        assert_eq!(checked(vec![url]).await, Ok(()));
    }
}

#[tokio::test]
async fn a_registry_that_cannot_answer_now_is_away() {
    for code in [408, 425, 429, 500, 502, 503, 504] {
        let (fault, url) = fault(status(code)).await;
        assert_eq!(fault.weight(), Weight::Passes, "{code}: {fault}");
        let told = fault.to_string();
        assert!(told.contains(&url) && told.contains(&code.to_string()), "{told}");
        assert!(told.ends_with("; check registry.url, and that it runs"), "{told}");
    }
    let silent = Stub::default().on("subjects", [Answered::Never]).start().await;
    let fault = impatient(silent).check(&[]).await.expect_err("it is silent");
    assert_eq!(fault.weight(), Weight::Passes, "{fault}");
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_away_with_either_scheme() {
    let (_holder, address) = deserted();
    for scheme in ["http", "https"] {
        let fault = checked(vec![format!("{scheme}://{address}")]).await.expect_err("nobody is there");
        let RegistryFault::Away { reason, .. } = &fault else { panic!("{fault}") };
        assert!(reason.contains("onnection refused"), "{reason}");
    }
}

#[tokio::test]
async fn a_refused_log_in_is_certain_and_names_the_settings() {
    let (fault, _) = fault(status(401)).await;
    assert_eq!(fault.weight(), Weight::Certain);
    let told = fault.told_of("--registry");
    for part in ["does not accept the log-in", "401", "bearer_token", "[registry]"] {
        assert!(told.contains(part), "{told}");
    }
}

#[tokio::test]
async fn whoever_may_read_a_subject_need_not_be_allowed_to_list_them() {
    let latest = "subjects/orders-value/versions/latest";
    for (answer, allowed) in [(status(403), false), (status(404), true), (status(503), true)] {
        let url = Stub::default().on("subjects", [status(403)]).on(latest, [answer]).start().await;
        match checked(vec![url]).await {
            Ok(()) => assert!(allowed),
            Err(fault) => {
                assert!(!allowed && fault.weight() == Weight::Certain, "{fault}");
                assert!(fault.to_string().contains("grant it to read"), "{fault}");
            }
        }
    }
}

#[tokio::test]
async fn a_registry_that_is_elsewhere_on_its_server_is_found_and_named() {
    let stub = Stub::default()
        .on("subjects", [page(404)])
        .on("subjects/subjects", [status(405)])
        .on("apis/ccompat/v7/subjects", [list()]);
    let url = stub.start().await;
    let right = format!("{url}apis/ccompat/v7");
    for wrong in [url.clone(), format!("{url}subjects"), format!("{url}apis/ccompat/v8/")] {
        let fault = checked(vec![wrong.clone()]).await.expect_err("the path is wrong");
        assert_eq!(fault.weight(), Weight::Certain, "{wrong}");
        let told = fault.told_of("--registry");
        assert!(told.ends_with(&format!("there is one at {right}; write that in --registry")), "{told}");
        assert_eq!(told.matches("status 40").count(), 1, "{told}");
    }
    assert_eq!(checked(vec![right]).await, Ok(()));
}

#[tokio::test]
async fn the_api_of_another_server_of_the_same_make_is_certainly_the_wrong_one() {
    let not_found = Answered::With(404, r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#.to_owned());
    let (fault, _) = fault(not_found).await;
    assert!(matches!(fault, RegistryFault::WrongPath { found: None, .. }), "{fault}");
    assert_eq!(fault.weight(), Weight::Certain);
}

#[tokio::test]
async fn what_a_proxy_may_say_for_a_registry_that_starts_may_pass() {
    for code in [404, 200, 410, 400] {
        let (fault, url) = fault(page(code)).await;
        assert!(matches!(fault, RegistryFault::NoRegistry { .. }), "{code}: {fault}");
        assert_eq!(fault.weight(), Weight::MayPass);
        let told = fault.to_string();
        assert!(told.contains(&url) && told.contains("/apis/ccompat/v7"), "{told}");
    }
}

#[tokio::test]
async fn a_plain_server_behind_a_tls_address_is_told_so() {
    // Also one that wants a log-in, or has nothing at this path: it answers, and not in TLS.
    for answer in [list(), status(401), status(404)] {
        let url = Stub::default().on("subjects", [answer]).start().await;
        let https = url.replace("http:", "https:");
        let fault = checked(vec![https]).await.expect_err("it speaks no TLS");
        assert!(matches!(fault, RegistryFault::NoTls { .. }), "{fault}");
        assert_eq!(fault.weight(), Weight::Certain);
        let told = fault.told_of("--registry");
        assert!(
            told.contains("does not speak TLS") && told.contains("write http:// in --registry"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn of_several_addresses_one_that_answers_or_may_come_back_is_enough() {
    let right = Stub::default().on("subjects", [list()]).start().await;
    let wrong = Stub::default().on("subjects", [status(401)]).start().await;
    let away = Stub::default().on("subjects", [status(503)]).start().await;
    assert_eq!(checked(vec![wrong.clone(), right]).await, Ok(()));
    let mildest = checked(vec![wrong.clone(), away]).await.expect_err("none answers");
    assert_eq!(mildest.weight(), Weight::Passes);
    let all_wrong = checked(vec![wrong.clone(), wrong]).await.expect_err("none answers");
    assert_eq!(all_wrong.weight(), Weight::Certain);
}

#[tokio::test]
async fn credentials_go_to_the_address_that_was_configured_and_are_not_told() {
    let stub = Stub::default().on("subjects", [status(401)]);
    let fault = checked_as(user(), vec![stub.start().await]).await.expect_err("refused");
    assert_eq!(stub.seen_auth.lock().as_deref(), Some("Basic bWU6aGlkZGVu"));
    assert!(!fault.to_string().contains("hidden"));
    // It may be anybody's server: that it speaks no TLS is asked without saying who asks.
    let stub = Stub::default().on("subjects", [list()]);
    let https = stub.start().await.replace("http:", "https:");
    let fault = checked_as(user(), vec![https]).await.expect_err("no TLS");
    assert!(matches!(fault, RegistryFault::NoTls { .. }) && stub.asked() == 1, "{fault}");
    assert_eq!(stub.seen_auth.lock().as_deref(), None);
}

#[test]
fn the_other_protocol_is_asked_for_at_the_same_port() {
    for (url, scheme, asked) in [
        ("https://registry", "http", "http://registry:443"),
        ("http://registry", "https", "https://registry:80"),
        ("https://registry:8081/apis/ccompat/v7", "http", "http://registry:8081/apis/ccompat/v7"),
        ("http://registry:443/a", "https", "https://registry/a"),
        ("https://[::1]/a", "http", "http://[::1]:443/a"),
    ] {
        assert_eq!(in_protocol(url, scheme).as_deref(), Some(asked), "{url}");
    }
}

#[tokio::test]
async fn a_port_that_sends_plain_requests_on_to_tls_is_not_told_to_lack_it() {
    let to_tls = |url: &str| format!("{}/subjects", url.replace("http:", "https:"));
    let url = redirecting(301, to_tls).await;
    let fault = checked(vec![url.replace("http:", "https:")]).await.expect_err("it speaks no TLS now");
    assert!(matches!(fault, RegistryFault::Away { .. }), "{fault}");
    // One that sends plain requests on to plain HTTP has no TLS.
    let url = redirecting(301, |url| format!("{url}/elsewhere")).await;
    let fault = checked(vec![url.replace("http:", "https:")]).await.expect_err("it speaks no TLS");
    assert!(matches!(fault, RegistryFault::NoTls { .. }), "{fault}");
}

#[tokio::test]
async fn a_redirect_to_the_same_address_with_tls_loses_the_log_in_and_is_told_with_https() {
    for status in [301, 302, 307, 308] {
        let url = redirecting(status, |url| format!("{}/subjects", url.replace("http:", "https:"))).await;
        let fault = checked_as(user(), vec![url.clone()]).await.expect_err("the log-in is left out");
        assert_eq!((fault.clone(), fault.weight()), (RegistryFault::Tls { url }, Weight::Certain));
        assert!(fault.to_string().ends_with("; write https:// in registry.url"), "{fault}");
    }
}

#[tokio::test]
async fn a_redirect_to_another_server_loses_the_log_in_and_is_told_with_its_address() {
    let private = Stub::default().on("v7/subjects", [status(401)]);
    let other = private.start().await;
    for auth in [user(), RegistryAuth::Bearer("hidden".to_owned()), RegistryAuth::None] {
        let url = redirecting(302, |_| format!("{other}v7/subjects?state=hidden#a")).await;
        let fault = checked_as(auth, vec![url.clone()]).await.expect_err("the log-in is left out");
        assert_eq!(fault.weight(), Weight::MayPass);
        let told = fault.told_of("--registry");
        let right = format!("{other}v7");
        let expected = format!("the schema registry at {url} redirects to {right}; write that in --registry");
        assert_eq!(told, expected);
    }
    assert_eq!(private.seen_auth.lock().as_deref(), None);
}

#[tokio::test]
async fn a_registry_behind_a_redirect_that_reads_its_schemas_is_one() {
    let open = Stub::default().on("subjects", [list()]).start().await;
    for auth in [user(), RegistryAuth::None] {
        let url = redirecting(307, |_| format!("{open}subjects")).await;
        assert_eq!(checked_as(auth, vec![url]).await, Ok(()));
    }
    // On the same server the log-in goes along, and is what is wrong when it is refused.
    let moved = Answered::To(301, "/moved/subjects".to_owned());
    let stub = Stub::default().on("subjects", [moved]).on("moved/subjects", [list(), status(401)]);
    let url = stub.start().await;
    assert_eq!(checked_as(user(), vec![url.clone()]).await, Ok(()));
    assert_eq!(stub.seen_auth.lock().as_deref(), Some("Basic bWU6aGlkZGVu"));
    let fault = checked_as(user(), vec![url]).await.expect_err("refused");
    assert!(matches!(fault, RegistryFault::LogIn { .. }), "{fault}");
}

#[tokio::test]
async fn a_redirect_may_pass_and_what_cannot_answer_behind_one_is_away() {
    let behind = Stub::default().on("subjects", [status(503)]).on("soon", [page(200)]).start().await;
    let url = redirecting(302, |_| format!("{behind}subjects")).await;
    let fault = checked(vec![url]).await.expect_err("it can't answer");
    assert_eq!(fault.weight(), Weight::Passes, "{fault}");
    // A page for the time being, and a circle.
    let url = redirecting(302, |_| format!("{behind}soon")).await;
    let fault = checked(vec![url]).await.expect_err("it is a page");
    assert!(
        matches!(&fault, RegistryFault::Redirect { to, .. } if *to == format!("{behind}soon")),
        "{fault}"
    );
    assert_eq!(fault.weight(), Weight::MayPass);
    let url = redirecting(302, |_| "/subjects".to_owned()).await;
    let fault = checked(vec![url]).await.expect_err("it is a circle");
    assert!(matches!(fault, RegistryFault::NoRegistry { .. }), "{fault}");
}
