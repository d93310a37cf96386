use crate::registry::tests::{Answered, Stub, TIMEOUT, status};
use crate::{RegistryAuth, RegistryFault, RegistrySettings, SchemaRegistry, Weight};

fn page(code: u16) -> Answered {
    Answered::With(code, "<html>404 page not found</html>".to_owned())
}

fn list() -> Answered {
    Answered::With(200, r#"["orders-value"]"#.to_owned())
}

async fn checked(urls: Vec<String>) -> Result<(), RegistryFault> {
    let settings = RegistrySettings { timeout: TIMEOUT, ..RegistrySettings::new(urls) };
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
    let (fault, _) = fault(Answered::Never).await;
    assert_eq!(fault.weight(), Weight::Passes, "{fault}");
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_away_with_either_scheme() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
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
        assert_eq!(told.matches("404").count() + told.matches("405").count(), 1, "{told}");
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
    let auth = RegistryAuth::Basic { user: "me".to_owned(), password: "hidden".to_owned() };
    let settings = RegistrySettings { auth: auth.clone(), ..RegistrySettings::new(vec![stub.start().await]) };
    let fault = SchemaRegistry::new(&settings).expect("a client").check(&[]).await.expect_err("refused");
    assert_eq!(stub.seen_auth.lock().as_deref(), Some("Basic bWU6aGlkZGVu"));
    assert!(!fault.to_string().contains("hidden"));
    // It may be anybody's server: that it speaks no TLS is asked without saying who asks.
    let stub = Stub::default().on("subjects", [list()]);
    let https = stub.start().await.replace("http:", "https:");
    let settings = RegistrySettings { auth, ..RegistrySettings::new(vec![https]) };
    let fault = SchemaRegistry::new(&settings).expect("a client").check(&[]).await.expect_err("no TLS");
    assert!(matches!(fault, RegistryFault::NoTls { .. }) && stub.asked() == 1, "{fault}");
    assert_eq!(stub.seen_auth.lock().as_deref(), None);
}
