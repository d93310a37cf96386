use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::*;

struct Asked {
    registry: Registry,
    client: Client,
}

impl Asked {
    async fn new() -> Self {
        Self { registry: Registry::start().await.unwrap(), client: Client::new() }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut request = self.client.request(method, self.registry.url() + path);
        if let Some(body) = body {
            request = request
                .header("content-type", "application/vnd.schemaregistry.v1+json")
                .body(body.to_string());
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.ask(Method::GET, path, None).await
    }

    async fn post(&self, path: &str, schema: &str) -> (u16, Value) {
        self.ask(Method::POST, path, Some(json!({ "schema": schema }))).await
    }

    #[track_caller]
    fn refused(answer: &(u16, Value), status: u16, code: u32) {
        assert_eq!((answer.0, &answer.1["error_code"]), (status, &json!(code)), "{answer:?}");
        assert!(answer.1["message"].as_str().is_some_and(|message| !message.is_empty()));
    }
}

const ID: &str = r#"{"name": "id", "type": "string"}"#;

fn event(fields: &str) -> String {
    format!(r#"{{"type": "record", "name": "Event", "fields": [{fields}]}}"#)
}

#[tokio::test]
async fn a_schema_is_registered_once_and_found_by_id_and_version() {
    let asked = Asked::new().await;
    let (first, second) =
        (event(ID), event(&format!(r#"{ID}, {{"name": "n", "type": "int", "default": 0}}"#)));
    assert_eq!(asked.get("/subjects").await, (200, json!([])));
    assert_eq!(asked.post("/subjects/a-value/versions", &first).await, (200, json!({ "id": 1 })));
    let spaced = first.replace(' ', "\n  ");
    assert_eq!(asked.post("/subjects/a-value/versions", &spaced).await, (200, json!({ "id": 1 })));
    assert_eq!(asked.post("/subjects/a-value/versions", &second).await, (200, json!({ "id": 2 })));
    // The same schema has the same id under every subject.
    assert_eq!(asked.post("/subjects/b-value/versions", &second).await, (200, json!({ "id": 2 })));
    assert_eq!(asked.get("/subjects").await.1, json!(["a-value", "b-value"]));
    assert_eq!(asked.get("/subjects/a-value/versions").await.1, json!([1, 2]));
    assert_eq!(asked.get("/schemas/ids/1").await, (200, json!({ "schema": first })));
    let expected = json!({ "subject": "a-value", "version": 2, "id": 2, "schema": second });
    for version in ["2", "latest", "-1"] {
        assert_eq!(
            asked.get(&format!("/subjects/a-value/versions/{version}")).await,
            (200, expected.clone())
        );
    }
    assert_eq!(asked.post("/subjects/a-value", &second).await, (200, expected));
}

#[tokio::test]
async fn what_is_not_there_has_confluents_codes() {
    let asked = Asked::new().await;
    assert_eq!(asked.post("/subjects/a-value/versions", &event(ID)).await.0, 200);
    Asked::refused(&asked.get("/subjects/none/versions").await, 404, 40401);
    Asked::refused(&asked.get("/subjects/none/versions/latest").await, 404, 40401);
    Asked::refused(&asked.get("/subjects/a-value/versions/2").await, 404, 40402);
    Asked::refused(&asked.get("/subjects/a-value/versions/soon").await, 422, 42202);
    Asked::refused(&asked.get("/schemas/ids/7").await, 404, 40403);
    Asked::refused(&asked.post("/subjects/none", &event(ID)).await, 404, 40401);
    Asked::refused(&asked.post("/subjects/a-value", &event("")).await, 404, 40403);
    Asked::refused(&asked.get("/nothing/here").await, 404, 404);
}

#[tokio::test]
async fn a_version_that_does_not_read_the_latest_is_refused_by_409_and_takes_no_place() {
    let asked = Asked::new().await;
    let other = event(r#"{"name": "id", "type": "string"}, {"name": "n", "type": "int"}"#);
    assert_eq!(asked.post("/subjects/a-value/versions", &event(ID)).await.0, 200);
    let path = "/compatibility/subjects/a-value/versions/latest";
    assert_eq!(asked.post(path, &event(ID)).await, (200, json!({ "is_compatible": true })));
    let (_, said) = asked.post(&format!("{path}?verbose=true"), &other).await;
    assert_eq!(said["is_compatible"], json!(false));
    assert_eq!(said["messages"].as_array().map(Vec::len), Some(1));
    Asked::refused(&asked.post("/subjects/a-value/versions", &other).await, 409, 409);
    assert_eq!(asked.get("/subjects/a-value/versions").await.1, json!([1]));
    // Where nothing is compared, it is taken.
    let none = Some(json!({ "compatibility": "NONE" }));
    assert_eq!(asked.ask(Method::PUT, "/config/a-value", none).await.0, 200);
    assert_eq!(asked.post("/subjects/a-value/versions", &other).await, (200, json!({ "id": 2 })));
}

#[tokio::test]
async fn what_is_no_avro_schema_is_refused_by_42201() {
    let asked = Asked::new().await;
    for schema in ["{", r#"{"type": "recrod"}"#] {
        Asked::refused(&asked.post("/subjects/a-value/versions", schema).await, 422, 42201);
    }
    for body in [
        json!({}),
        json!({ "schema": event(ID), "schemaType": "PROTOBUF" }),
        json!({ "schema": event(ID), "references": [{ "name": "a", "subject": "b", "version": 1 }] }),
    ] {
        Asked::refused(&asked.ask(Method::POST, "/subjects/a-value/versions", Some(body)).await, 422, 42201);
    }
    assert_eq!(asked.get("/subjects").await.1, json!([]));
}

#[tokio::test]
async fn the_level_is_backward_until_it_is_set() {
    let asked = Asked::new().await;
    let put = |level: &str| Some(json!({ "compatibility": level }));
    assert_eq!(asked.get("/config").await, (200, json!({ "compatibilityLevel": "BACKWARD" })));
    Asked::refused(&asked.get("/config/a-value").await, 404, 40408);
    Asked::refused(&asked.ask(Method::PUT, "/config", put("SOMETIMES")).await, 422, 42203);
    let answer = asked.ask(Method::PUT, "/config", put("FULL_TRANSITIVE")).await;
    assert_eq!(answer, (200, json!({ "compatibility": "FULL_TRANSITIVE" })));
    assert_eq!(asked.get("/config").await.1, json!({ "compatibilityLevel": "FULL_TRANSITIVE" }));
    assert_eq!(
        asked.get("/config/a-value?defaultToGlobal=true").await.1,
        json!({ "compatibilityLevel": "FULL_TRANSITIVE" })
    );
}
