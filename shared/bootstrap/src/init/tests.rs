use std::io::Cursor;
use std::path::Path;

use super::*;
use crate::ExitCode;
use crate::config::{Config, Handler, HttpUrl, KeySource, Start, TopicName};

/// A registry that has one topic.
struct OneTopic;

impl Schemas for OneTopic {
    fn fields(&self, _: &HttpUrl, topic: &TopicName) -> Result<Vec<Field>, SchemaTrouble> {
        let field = |path: &str, type_name: &str, kind| Field {
            path: path.to_owned(),
            type_name: type_name.to_owned(),
            kind,
        };
        if topic.as_str() != "shop.payments.v1" {
            return Err(SchemaTrouble::UnknownSubject {
                subject: format!("{topic}-value"),
                known: vec!["shop.payments.v1-value".to_owned(), "other-value".to_owned()],
            });
        }
        Ok(vec![
            field("amount_cents", "long", FieldKind::Value),
            field("payment_id", "string", FieldKind::Value),
            field("order_id", "string", FieldKind::Value),
            field("referrer", "string", FieldKind::MaybeNull),
            field("customer", "shop.Customer", FieldKind::Container),
            field("customer.id", "string", FieldKind::Value),
            field("lines", "array", FieldKind::Container),
        ])
    }
}

/// A registry that does not answer.
struct Away;

impl Schemas for Away {
    fn fields(&self, registry: &HttpUrl, _: &TopicName) -> Result<Vec<Field>, SchemaTrouble> {
        Err(SchemaTrouble::Unreachable { reason: format!("the schema registry {registry} can't be reached") })
    }
}

fn flags() -> Given {
    Given {
        bootstrap: Some("kafka-1:9092, kafka-2:9092".to_owned()),
        registry: Some("http://registry:8081".to_owned()),
        topic: Some("shop.payments.v1".to_owned()),
        class: Some("charge".to_owned()),
        key: Some("payment_id,customer.id".to_owned()),
        tier: Some("critical".to_owned()),
        url: Some("http://pay:8000/charge".to_owned()),
        start: Some("2026-01-31T00:00:00Z".to_owned()),
        environment: FromEnvironment::default(),
    }
}

fn by_flags(given: &Given, schemas: &impl Schemas, check: FieldCheck) -> Result<Answers, InitError> {
    interview(given, &mut Defaults::new(Vec::new()), schemas, check)
}

/// The answers to these lines, and all that was shown.
fn dialogue(given: &Given, lines: &str, schemas: &impl Schemas) -> (Result<Answers, InitError>, String) {
    let mut shown = Vec::new();
    let mut person = Dialogue::new(Cursor::new(lines.to_owned()), &mut shown);
    let answers = interview(given, &mut person, schemas, FieldCheck::Required);
    (answers, String::from_utf8(shown).unwrap())
}

#[track_caller]
fn check_refused(change: impl FnOnce(&mut Given), expected: &str) {
    let mut given = flags();
    change(&mut given);
    let error = by_flags(&given, &OneTopic, FieldCheck::Required).unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.exit_code(), ExitCode::Usage);
}

#[test]
fn what_flags_say_is_written_and_is_a_valid_configuration() {
    let answers = by_flags(&flags(), &OneTopic, FieldCheck::Required).unwrap();
    let text = answers.text(Path::new("tidegate.toml")).unwrap();
    let config = Config::parse("it", &text, std::iter::empty()).unwrap();
    assert_eq!(config.kafka.bootstrap_servers(), "kafka-1:9092,kafka-2:9092");
    assert_eq!(config.registry.as_ref().unwrap().url[0].as_str(), "http://registry:8081");
    let class = config.classes.values().next().unwrap();
    assert_eq!((class.name.as_str(), class.tier.as_str()), ("charge", "critical"));
    assert!(text.contains("[classes.charge]"), "{text}");
    assert_eq!(class.sources[0].as_str(), "shop.payments.v1");
    let KeySource::Fields(key) = &class.key else { panic!("{:?}", class.key) };
    assert_eq!(key.iter().map(|path| path.as_str()).collect::<Vec<_>>(), ["payment_id", "customer.id"]);
    let Handler::Http(http) = &class.handler else { panic!("{:?}", class.handler) };
    assert_eq!(http.url.as_str(), "http://pay:8000/charge");
    assert!(matches!(config.sources.values().next().unwrap().start, Start::At(_)));
    assert_eq!(config.notes(), [""; 0]);
}

#[test]
fn what_is_commented_out_is_valid_too() {
    let answers = by_flags(&flags(), &OneTopic, FieldCheck::Required).unwrap();
    let text = answers.text(Path::new("tidegate.toml")).unwrap();
    // Prose has no `=` and no bracket at its beginning.
    let uncommented: Vec<&str> = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.starts_with('[') || rest.split(' ').nth(1) == Some("=") => rest,
            _ => line,
        })
        .collect();
    let uncommented = format!("{}\n", uncommented.join("\n")).replace(
        "username = \"tidegate\"  # the password belongs into TIDEGATE_REGISTRY",
        "username = \"tidegate\"\npassword = \"x\"  # TIDEGATE_REGISTRY",
    );
    let config = Config::parse("it", &uncommented, std::iter::empty()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((config.ignore.len(), config.kafka.replication.map(u16::from)), (1, Some(3)));
    assert_eq!(config.kafka.properties.get("sasl.username"), Some("tidegate"));
}

#[test]
fn a_key_field_that_the_schema_lacks_is_told_with_the_nearest_name() {
    check_refused(
        |given| given.key = Some("payment_di".to_owned()),
        "--key: the schema has no field `payment_di`; did you mean `payment_id`?",
    );
    check_refused(
        |given| given.key = Some("colour".to_owned()),
        "--key: the schema has no field `colour`; it has amount_cents, payment_id, order_id, referrer, customer.id",
    );
}

#[test]
fn a_key_is_made_of_single_values() {
    check_refused(
        |given| given.key = Some("customer".to_owned()),
        "--key: `customer` is of type shop.Customer, and a key is made of single values; name a field within it: customer.id",
    );
    check_refused(
        |given| given.key = Some("lines".to_owned()),
        "--key: `lines` is of type array, and a key is made of single values; name one of amount_cents, payment_id, \
         order_id, referrer, customer.id",
    );
}

#[test]
fn a_wrong_flag_is_told_with_what_to_write() {
    check_refused(
        |given| given.bootstrap = Some("kafka".to_owned()),
        "--bootstrap: `kafka` has no port; write it like kafka-1:9092",
    );
    check_refused(
        |given| given.tier = Some("critcal".to_owned()),
        "--tier: `critcal` is no tier; did you mean `critical`?",
    );
    check_refused(
        |given| given.start = Some("now".to_owned()),
        "--start: `now` is no start; write \"latest\", \"earliest\" or a time in UTC like \"2026-01-31T00:00:00Z\"",
    );
    check_refused(
        |given| given.key = Some("order_id,order_id".to_owned()),
        "--key: `order_id` stands there twice; keep one of them",
    );
}

#[test]
fn a_topic_without_a_schema_is_told_with_the_nearest_subject() {
    check_refused(
        |given| given.topic = Some("shop.payment.v1".to_owned()),
        "the registry has no schema for the subject shop.payment.v1-value (it has shop.payments.v1-value); correct --topic, \
         let a publisher register its schema, or write the file with its fields unchecked: --offline",
    );
}

#[test]
fn without_a_registry_nothing_is_written_unless_it_is_asked_for() {
    let error = by_flags(&flags(), &Away, FieldCheck::Required).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the schema registry http://registry:8081 can't be reached; check --registry and that it runs, or write the file \
         with its fields unchecked: --offline"
    );
    assert_eq!(error.exit_code(), ExitCode::Failed, "trying again may help");
    let answers = by_flags(&flags(), &Away, FieldCheck::Offline).unwrap();
    assert_eq!(answers.key.len(), 2);
}

#[test]
fn what_has_a_default_need_not_be_given_and_the_rest_is_named() {
    assert_eq!(Given::default().missing(), ["--topic", "--start", "--key", "--url"]);
    let given = Given { bootstrap: None, registry: None, class: None, tier: None, ..flags() };
    assert_eq!(given.missing(), [""; 0]);
    let answers = by_flags(&given, &OneTopic, FieldCheck::Required).unwrap();
    assert_eq!((answers.class.as_str(), answers.tier.as_str()), ("payments", "default"));
    // A likely key may be suggested to a person, and not be taken for granted.
    let error =
        by_flags(&Given { key: None, ..flags() }, &OneTopic, FieldCheck::Required).unwrap_err().to_string();
    assert!(error.starts_with("there is no default for --key: "), "{error}");
}

#[test]
fn a_person_is_asked_for_everything_and_may_take_what_is_suggested() {
    let lines = "\n\nshop.payments.v1\nlatest\n\n\n\nhttp://pay/charge\n";
    let (answers, shown) = dialogue(&Given::default(), lines, &OneTopic);
    let answers = answers.unwrap_or_else(|error| panic!("{error}\n{shown}"));
    assert_eq!(answers.key[0].as_str(), "payment_id", "the first field that looks like an id");
    assert_eq!(answers.start, Start::Latest);
    let asked = [
        "Kafka brokers",
        "registry's address",
        "The topic",
        "Where",
        "The fields",
        "A name",
        "tier",
        "The endpoint",
    ];
    let mut rest = shown.as_str();
    for question in asked {
        (_, rest) =
            rest.split_once(question).unwrap_or_else(|| panic!("{question} is not asked in turn: {shown}"));
    }
    assert!(shown.contains("Its events have amount_cents, payment_id"), "{shown}");
}

#[test]
fn a_wrong_answer_is_asked_again_with_what_was_wrong() {
    let lines = "kafka\nkafka:9092\n\nshop.payments.v1\n\nlatest\npayment_di\npayment_id\n\nhuge\nbulk\nhttp://pay/charge\n";
    let (answers, shown) = dialogue(&Given::default(), lines, &OneTopic);
    let answers = answers.unwrap_or_else(|error| panic!("{error}\n{shown}"));
    assert_eq!((answers.tier.as_str(), answers.key[0].as_str()), ("bulk", "payment_id"));
    for told in [
        "`kafka` has no port",
        "It needs an answer.",
        "did you mean `payment_id`?",
        "`huge` is no tier; choose critical, default or bulk",
    ] {
        assert!(shown.contains(told), "{told}:\n{shown}");
    }
}

#[test]
fn a_person_is_asked_only_for_what_no_flag_gives() {
    let (answers, shown) = dialogue(&Given { tier: None, ..flags() }, "bulk\n", &OneTopic);
    assert_eq!(answers.unwrap().tier.as_str(), "bulk");
    assert!(!shown.contains("Kafka brokers"), "{shown}");
}

#[test]
fn a_field_that_may_be_null_is_noted() {
    let (answers, shown) = dialogue(&Given { key: None, ..flags() }, "referrer\n", &OneTopic);
    assert_eq!(answers.unwrap().key[0].as_str(), "referrer");
    assert!(shown.contains("Note: `referrer` may be null"), "{shown}");
}

#[test]
fn a_person_decides_whether_to_go_on_without_the_registry() {
    let (answers, shown) = dialogue(&flags(), "y\n", &Away);
    assert_eq!(answers.unwrap().key.len(), 2);
    assert!(shown.contains("can't be reached"), "{shown}");
    let (answers, _) = dialogue(&flags(), "\n", &Away);
    assert!(matches!(answers, Err(InitError::Unchecked { .. })), "no is the default");
}

#[test]
fn an_input_that_ends_early_is_no_answer() {
    let (answers, _) = dialogue(&Given::default(), "\n\n", &OneTopic);
    assert!(matches!(answers, Err(InitError::Ended)), "{answers:?}");
}

#[test]
fn a_file_that_is_there_is_replaced_only_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.toml");
    check_place(&path, None).unwrap();
    write_new(&path, "first", None).unwrap();
    for refused in [check_place(&path, None), write_new(&path, "second", None)] {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains("--force"), "{error}");
        assert_eq!(error.exit_code(), ExitCode::Usage);
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "first");
    check_place(&path, Some(Replace)).unwrap();
    write_new(&path, "third", Some(Replace)).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "third");
    let error = write_new(Path::new("/nonexistent/t.toml"), "", None).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/t.toml can't be written"), "{error}");
}

#[test]
fn a_file_is_written_whole_and_nothing_stands_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.toml");
    let (link, listed) = (folder.path().join("link"), || std::fs::read_dir(folder.path()).unwrap().count());
    write_new(&path, "first", None).unwrap();
    write_new(&path, "second", None).unwrap_err();
    assert_eq!(listed(), 1);
    std::os::unix::fs::symlink(&path, &link).unwrap();
    write_new(&link, "third", Some(Replace)).unwrap();
    assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), listed()), ("third", 2));
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn a_place_that_can_hold_no_file_is_told_with_one_that_can() {
    let folder = tempfile::tempdir().unwrap();
    for force in [None, Some(Replace)] {
        let refused = |path: &Path| {
            let error = check_place(path, force).unwrap_err();
            assert_eq!(error.exit_code(), ExitCode::Usage);
            error.to_string()
        };
        assert_eq!(refused(Path::new(".")), ". is a folder; name a file in it: --out ./tidegate.toml");
        let missing = folder.path().join("conf/tidegate.toml");
        let said = refused(&missing);
        assert!(said.starts_with("there is no folder ") && said.contains("mkdir -p"), "{said}");
    }
}

#[test]
fn what_is_wrong_is_told_before_the_registry_is_asked() {
    /// A registry that nobody should ask.
    struct NotAsked;
    impl Schemas for NotAsked {
        fn fields(&self, _: &HttpUrl, _: &TopicName) -> Result<Vec<Field>, SchemaTrouble> {
            panic!("the registry was asked")
        }
    }
    type Change = fn(&mut Given, String);
    let wrong: [(Change, &str); 6] = [
        (|given, text| given.start = Some(text), "--start"),
        (|given, text| given.url = Some(text), "--url"),
        (|given, text| given.tier = Some(text), "--tier"),
        (|given, text| given.class = Some(text), "--class"),
        (|given, text| given.key = Some(text), "--key"),
        (|given, text| given.topic = Some(text), "--topic"),
    ];
    for (change, flag) in wrong {
        let mut given = flags();
        change(&mut given, "no / such..value".to_owned());
        let error = by_flags(&given, &NotAsked, FieldCheck::Required).unwrap_err();
        assert!(
            matches!(&error, InitError::Invalid { flag: named, .. } if *named == flag),
            "{flag}: {error}"
        );
        // Nor is a person asked before.
        let mut shown = Vec::new();
        let mut person = Dialogue::new(Cursor::new(String::new()), &mut shown);
        let given = Given { bootstrap: None, ..given };
        let error = interview(&given, &mut person, &NotAsked, FieldCheck::Required).unwrap_err();
        assert!(matches!(error, InitError::Invalid { .. }) && shown.is_empty(), "{flag}: {error}");
    }
}

#[test]
fn the_servers_of_the_environment_are_the_defaults() {
    let variables = |bootstrap: &str| {
        let both =
            [("TIDEGATE_KAFKA__BOOTSTRAP", bootstrap), ("TIDEGATE_REGISTRY__URL", "http://r:1, http://r:2")];
        FromEnvironment::of(both.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter())
    };
    let given =
        Given { bootstrap: None, registry: None, environment: variables("b-1:9092,b-2:9092"), ..flags() };
    let answers = by_flags(&given, &OneTopic, FieldCheck::Required).unwrap();
    assert_eq!(
        answers.bootstrap.iter().map(|broker| broker.as_str()).collect::<Vec<_>>(),
        ["b-1:9092", "b-2:9092"]
    );
    assert_eq!(answers.registry.as_str(), "http://r:1");
    let (answers, shown) = dialogue(&given, "\nhttp://mine:1\n", &OneTopic);
    assert_eq!(answers.unwrap().registry.as_str(), "http://mine:1");
    assert!(shown.contains("[b-1:9092,b-2:9092]") && shown.contains("[http://r:1]"), "{shown}");
    // A flag counts for more, and what a variable says wrongly is told by its name.
    let given = Given { environment: variables("no-port"), ..flags() };
    assert_eq!(
        by_flags(&given, &OneTopic, FieldCheck::Required).unwrap().bootstrap[0].as_str(),
        "kafka-1:9092"
    );
    let error = by_flags(&Given { bootstrap: None, ..given }, &OneTopic, FieldCheck::Required).unwrap_err();
    assert!(error.to_string().starts_with("TIDEGATE_KAFKA__BOOTSTRAP: `no-port` has no port"), "{error}");
}
