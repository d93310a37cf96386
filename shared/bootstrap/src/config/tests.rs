use std::time::Duration;

use super::*;

/// What suffices for one class with an HTTP handler: 15 lines.
const MINIMAL: &str = r#"
[kafka]
bootstrap = "localhost:9092"

[registry]
url = "http://localhost:8081"

[sources."shop.payments.v1"]
start = "latest"

[classes.charge-card]
source = "shop.payments.v1"
key = ["payment_id"]
handler = { type = "http", url = "http://localhost:3000/charge" }
"#;

fn parse_with(text: &str, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::parse(
        "tidegate.toml",
        text,
        env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

fn valid(text: &str, env: &[(&str, &str)]) -> Config {
    parse_with(text, env).unwrap_or_else(|error| panic!("{error}"))
}

/// The problems of `MINIMAL` with more lines after it and these variables, as they are printed.
fn problems(more: &str, env: &[(&str, &str)]) -> Vec<String> {
    problems_of(&format!("{MINIMAL}{more}"), env)
}

fn problems_of(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    match parse_with(text, env) {
        Err(ConfigError::Invalid(problems)) => problems.iter().map(Problem::to_string).collect(),
        Err(other) => panic!("{other}"),
        Ok(_) => Vec::new(),
    }
}

fn the_class(config: &Config) -> &Class {
    config.classes.values().next().expect("there is one class")
}

mod defaults {
    use super::*;

    #[test]
    fn fifteen_lines_suffice_for_a_class_with_an_http_handler() {
        assert!(MINIMAL.trim().lines().count() <= 15);
        let config = valid(MINIMAL, &[]);
        assert_eq!(config.pipeline.name.as_str(), "tidegate");
        assert_eq!(
            config.tiers.keys().map(TierName::as_str).collect::<Vec<_>>(),
            ["bulk", "critical", "default"]
        );
        let class = the_class(&config);
        assert_eq!(class.tier.as_str(), "default");
        assert_eq!(class.key_scope.as_str(), "charge-card");
        assert_eq!(class.partition_by, ["payment_id".parse().unwrap()]);
        assert_eq!(class.max_attempts.get(), 4);
        let Handler::Http(http) = &class.handler else { panic!("{:?}", class.handler) };
        assert_eq!(http.timeout, Duration::from_secs(30));
    }

    #[test]
    fn the_effective_configuration_reads_back_as_itself() {
        let more = r#"
            on_conflict = "dead_letter"
            max_age = "36h"
            when = { country = ["DE", "AT"], customer.vip = true }
            key_window = { field = "paid_at" }
            [classes.by-header]
            tier = "bulk"
            source = ["shop.payments.v1"]
            key_header = "event-id"
            handler = { type = "log" }
            [classes.by-position]
            source = ["shop.payments.v1"]
            key_by_position = true
            handler = { type = "rust" }
            [[ignore]]
            name = "tests"
            source = "shop.payments.v1"
            when.test = true
            [topics]
            dlq_retention = "90d"
        "#;
        let config = valid(&format!("{MINIMAL}{more}"), &[]);
        let effective = config.effective();
        assert_eq!(valid(&effective, &[]), config, "{effective}");
    }

    #[test]
    fn the_ladder_is_summed_up_in_words() {
        let config = valid(MINIMAL, &[]);
        assert_eq!(config.ladder_summary(), "4 attempts; waits 1s + 4s + 16s = 21s (17s to 25s with jitter)");
        let ladder = &config.retry.ladder;
        assert_eq!(
            config.retry.summary(ladder, 6),
            "6 attempts; waits 1s + 4s + 3 x 16s = 53s (42s to 64s with jitter)"
        );
        assert_eq!(config.retry.summary(ladder, 1), "1 attempt; no retry");
    }

    #[test]
    fn a_class_is_guarded_from_floods_unless_it_says_otherwise() {
        let flood = the_class(&valid(MINIMAL, &[])).flood;
        assert!(flood.enabled && flood.probe_at_most == Duration::from_secs(30));
        let rare = "[classes.charge-card.flood]\nprobe_after = \"5m\"";
        let flood = the_class(&valid(&format!("{MINIMAL}{rare}"), &[])).flood;
        assert_eq!(flood.probe_at_most, Duration::from_secs(300), "never less than the first wait");
        let off = [("TIDEGATE_CLASSES__CHARGE_CARD__FLOOD__ENABLED", "false")];
        assert!(!the_class(&valid(MINIMAL, &off)).flood.enabled);
    }

    #[test]
    fn a_start_may_be_a_time() {
        let text = MINIMAL.replace("\"latest\"", "2026-01-31T00:00:00Z");
        let config = valid(&text, &[]);
        assert!(config.effective().contains("start = \"2026-01-31T00:00:00Z\""));
    }
}

mod refusals {
    use super::*;

    #[test]
    fn all_problems_are_reported_at_once() {
        let text = MINIMAL.replace("localhost:9092", "localhost").replace("start = \"latest\"", "").replace(
            "source = \"shop.payments.v1\"",
            "source = \"shop.payment.v1\"\ntier = \"bluk\"\ntime_limt = \"5s\"",
        );
        assert_eq!(
            problems_of(&text, &[]),
            [
                "kafka.bootstrap: `localhost` has no port; write it like kafka-1:9092",
                "sources.\"shop.payments.v1\".start: it is missing; write \"latest\" (only new events), \
                 \"earliest\" (all that the topic holds) or a time",
                "classes.charge-card.tier: no tier is named `bluk`; did you mean `bulk`?",
                "classes.charge-card.source: no source is named `shop.payment.v1`; did you mean `shop.payments.v1`?",
                "classes.charge-card.time_limt: there is no such setting; did you mean `time_limit`?",
            ]
        );
    }

    #[test]
    fn a_slip_in_a_name_is_one_problem_whatever_is_missing_because_of_it() {
        let rest = "\n[retry]\nladder = [\"1s\", \"2s\"]\n[tiers.gold]\n[[ignore]]\nname = \"no\"\nsource = \"shop.payments.v1\"\n\
                    [classes.gold]\ntier = \"gold\"\nladder = [\"2s\"]\nsource = [\"shop.payments.v1\"]\nkey_header = \"id\"\n\
                    handler = { type = \"log\" }\n[classes.charge-card.flood]\nprobe_after = \"2m\"\nprobe_at_most = \"3m\"";
        let text = format!("{MINIMAL}{rest}").replace("tier = \"gold\"", "tier = \"default\"");
        let text = text.replace("[tiers.gold]", "[tiers.default]");
        assert_eq!(problems_of(&text, &[]), [""; 0]);
        for (right, slip, place) in [
            // What is required.
            ("[kafka]", "[kafak]", "kafak"),
            ("bootstrap =", "bootstrop =", "kafka.bootstrop"),
            ("url = \"http://localhost:8081\"", "ulr = \"http://localhost:8081\"", "registry.ulr"),
            ("start =", "strat =", "sources.\"shop.payments.v1\".strat"),
            ("handler = { type = \"http\"", "handlr = { type = \"http\"", "classes.charge-card.handlr"),
            ("type = \"log\"", "tpye = \"log\"", "classes.gold.handler.tpye"),
            ("key = [", "kay = [", "classes.charge-card.kay"),
            ("key_header =", "keyheader =", "classes.gold.keyheader"),
            (
                "source = \"shop.payments.v1\"\nkey",
                "suorce = \"shop.payments.v1\"\nkey",
                "classes.charge-card.suorce",
            ),
            ("name = \"no\"", "nmae = \"no\"", "ignore[0].nmae"),
            // What others refer to.
            ("[sources.", "[sorces.", "sorces"),
            ("[registry]", "[regsitry]", "regsitry"),
            ("[retry]", "[rerty]", "rerty"),
            ("ladder = [\"1s\", \"2s\"]", "lader = [\"1s\", \"2s\"]", "retry.lader"),
            ("probe_at_most", "probe_at_mots", "classes.charge-card.flood.probe_at_mots"),
        ] {
            assert!(text.contains(right), "{right}");
            let found = problems_of(&text.replacen(right, slip, 1), &[]);
            assert_eq!(found.len(), 1, "{slip}: {found:#?}");
            let told = format!("{place}: there is no such setting; did you mean `");
            assert!(found[0].starts_with(&told), "{found:?}");
        }
    }

    #[test]
    fn a_slip_in_a_variable_is_one_problem_too() {
        let text = MINIMAL.replace("bootstrap = \"localhost:9092\"", "");
        for slip in ["TIDEGATE_KAFKA__BOOTSTARP", "TIDEGATE_KAFKA_BOOTSTRAP"] {
            let found = problems_of(&text, &[(slip, "localhost:9092")]);
            let told = format!(
                "environment variable {slip}: it names no setting; did you mean TIDEGATE_KAFKA__BOOTSTRAP?"
            );
            assert_eq!(found, [told]);
        }
    }

    #[test]
    fn what_is_wrong_behind_a_slip_is_told_with_it_and_in_its_order() {
        let text = MINIMAL
            .replace("[registry]", "[regsitry]")
            .replace("url = \"http://localhost:8081\"", "ulr = \"localhost:8081\"")
            .replace("start = \"latest\"", "start = \"later\"");
        let found = problems_of(&text, &[]);
        assert_eq!(found.len(), 4, "{found:#?}");
        for (problem, told) in found.iter().zip([
            "registry.url: it is not an http address",
            "registry.ulr: there is no such setting; did you mean `url`?",
            "sources.\"shop.payments.v1\".start: ",
            "regsitry: there is no such setting; did you mean `registry`?",
        ]) {
            assert!(problem.starts_with(told), "{found:#?}");
        }
    }

    #[test]
    fn a_slip_beside_the_name_that_was_meant_is_refused_and_nothing_else() {
        check(
            "handlr = { type = \"log\" }",
            "classes.charge-card.handlr: there is no such setting; did you mean `handler`?",
        );
        let twice = MINIMAL.replace("handler =", "handlr = { type = \"log\" }\nhandlre =");
        let found = problems_of(&twice, &[]);
        assert!(
            found.len() == 2 && found.iter().all(|problem| problem.contains("did you mean `handler`?")),
            "{found:?}"
        );
    }

    #[track_caller]
    fn check(more: &str, expected: &str) {
        assert_eq!(problems(more, &[]), [expected]);
    }

    #[test]
    fn an_unknown_key_is_refused_in_every_section() {
        for section in [
            "pipeline",
            "retry",
            "state",
            "topics",
            "consume",
            "observe",
            "tiers.default",
            "kafka.x",
            "classes.charge-card.x",
            "classes.charge-card.key_window",
            "classes.charge-card.flood",
        ] {
            let found = problems(&format!("[{section}]\nnonsense = 1"), &[]);
            assert!(
                found.iter().any(|problem| problem.contains("there is no such setting")),
                "{section}: {found:?}"
            );
        }
    }

    #[test]
    fn a_wrong_kind_of_value_says_what_to_write() {
        check(
            "[tiers.default]\npartitions = \"six\"",
            "tiers.default.partitions: it must be a whole number, not text; write it in digits only, without quotes",
        );
        check(
            "[consume]\ndrain_deadline = 25",
            "consume.drain_deadline: it must be a duration, not a whole number; write it with its unit, like \"30s\"",
        );
    }

    #[test]
    fn a_flood_guard_that_could_never_work_is_refused() {
        check(
            "[classes.charge-card.flood]\nprobe_after = \"2m\"\nprobe_at_most = \"1m\"",
            "classes.charge-card.flood.probe_at_most: 1m is less than probe_after = 2m; raise it, or lower probe_after",
        );
        check(
            "[classes.charge-card.flood]\nfailures = 0",
            "classes.charge-card.flood.failures: 0 is out of range; choose a value from 0.01 to 1",
        );
    }

    #[test]
    fn a_topic_name_without_quotes_gets_a_hint() {
        let found = problems("[sources.orders.v1]\nstart = \"latest\"", &[]);
        assert!(
            found.iter().any(|problem| problem.contains(r#"quote it: [sources."orders.v1"]"#)),
            "{found:?}"
        );
    }

    #[test]
    fn a_property_that_the_promise_rests_on_is_refused() {
        check(
            "[kafka.properties]\n\"enable.auto.commit\" = true",
            "kafka.properties.\"enable.auto.commit\": an offset may be committed only when all records below it are \
             settled; remove it",
        );
        // The same without quotes, which TOML reads as tables.
        let unquoted = "[kafka.producer_properties]\nacks = 1\nlinger.ms = 5";
        assert_eq!(problems(unquoted, &[]).len(), 1, "only acks is refused");
    }

    #[test]
    fn a_log_in_needs_a_mechanism_that_the_client_has() {
        check(
            "[kafka.properties]\n\"security.protocol\" = \"SASL_SSL\"",
            "kafka.properties.\"sasl.mechanisms\": it is missing, and security.protocol asks for a log-in; write PLAIN, SCRAM-SHA-256 \
             or SCRAM-SHA-512",
        );
        for unknown in ["GSSAPI", "OAUTHBEARER", "scram-sha-512"] {
            check(
                &format!(
                    "[kafka.properties]\n\"security.protocol\" = \"SASL_SSL\"\n\"sasl.mechanism\" = \"{unknown}\""
                ),
                &format!(
                    "kafka.properties.\"sasl.mechanism\": this client has no SASL mechanism `{unknown}`; write PLAIN, SCRAM-SHA-256 or \
                     SCRAM-SHA-512"
                ),
            );
        }
    }

    #[test]
    fn partition_by_must_be_part_of_the_key() {
        check(
            "partition_by = [\"customer_id\"]",
            "classes.charge-card.partition_by: `customer_id` is not in `key`, and equal keys must meet in one \
             partition; add the field to `key`: it changes nothing if the rest already decides it",
        );
    }

    #[test]
    fn a_class_needs_exactly_one_kind_of_key() {
        assert_eq!(problems("key_header = \"id\"", &[]).len(), 1);
        let found = problems_of(&MINIMAL.replace("key = [\"payment_id\"]", ""), &[]);
        assert!(found[0].contains("nothing says what makes two events the same job"), "{found:?}");
    }

    #[test]
    fn a_ladder_is_ascending_and_each_rung_is_in_one_list_only() {
        check(
            "[retry]\nladder = [\"4s\", \"1s\"]",
            "retry.ladder: 4s stands before 1s; write the delays from short to long",
        );
        check(
            "[retry]\nladder = [\"60s\", \"1m\"]",
            "retry.ladder: `1m` stands there twice; keep one of them",
        );
        assert_eq!(problems("[retry]\nwait_only = [\"16s\"]", &[]).len(), 1);
        assert_eq!(problems("ladder = [\"2s\"]", &[]).len(), 1);
    }

    #[test]
    fn the_pipelines_own_topics_are_no_sources() {
        let found = problems("[sources.\"tidegate.default.jobs\"]\nstart = \"latest\"", &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(problems("[sources.\"tidegate.orders\"]\nstart = \"latest\"", &[]), [""; 0]);
    }

    #[test]
    fn a_retention_shorter_than_a_wait_is_refused() {
        check(
            "[state]\nretention = \"1h\"",
            "state.retention: 1h is less than a job may wait in all delay topics, and its mark is believed then; set at least \"1h 25m 38s\"",
        );
        // 21 s of the ladder, 660 s of the rest, a fifth more for jitter; then the longest of them, and an hour.
        assert_eq!(problems("[state]\nretention = \"5138s\"", &[]), [""; 0]);
        assert_eq!(problems("[state]\nretention = \"5137s\"", &[]).len(), 1);
        assert_eq!(problems("[retry]\nwait_only = [\"1m\", \"1d\"]", &[]).len(), 1);
        assert_eq!(problems("[topics]\njob_retention = \"20m\"", &[]).len(), 1);
    }

    #[test]
    fn the_summary_of_duplicates_says_for_how_long_and_what_comes_later() {
        let summary = |more: &str| valid(&format!("{MINIMAL}\n{more}"), &[]).duplicates_summary();
        assert_eq!(
            summary(""),
            "a duplicate is refused for 1d after its job was done; a replay of an older record runs the job again. Job and delay \
             topics hold a record for 14d: after an outage longer than 1d, a duplicate that waited in them may run again"
        );
        assert!(summary("[state]\nretention = \"14d\"").ends_with(
            "Job and delay topics hold a record for 14d, so marks outlast whatever waits in them"
        ));
    }

    #[test]
    fn a_window_that_outlasts_the_marks_of_its_keys_is_noted() {
        let window = |every: &str, more: &str| {
            let class =
                "[classes.weekly]\nsource = \"shop.payments.v1\"\nkey = [\"id\"]\nhandler.type = \"log\"\n";
            let text =
                format!("{MINIMAL}\n{class}key_window = {{ field = \"at\", every = \"{every}\" }}\n{more}");
            valid(&text, &[]).notes()
        };
        assert_eq!(window("1d", ""), [""; 0]);
        assert_eq!(window("7d", "[state]\nretention = \"7d\""), [""; 0]);
        let notes = window("7d", "");
        assert_eq!(notes.len(), 1);
        assert!(
            notes[0].starts_with(
                "classes.weekly.key_window.every = 7d, but a done job is remembered for 1d only"
            ),
            "{notes:?}"
        );
    }

    #[test]
    fn classes_that_share_a_scope_must_meet_in_one_partition() {
        let other = |more: &str| {
            format!(
                "[classes.other]\nsource = \"shop.payments.v1\"\nkey_scope = \"charge-card\"\nhandler.type = \"log\"\n{more}"
            )
        };
        assert_eq!(problems(&other("key = [\"id\"]"), &[]), [""; 0]);
        assert_eq!(problems(&other("key = [\"id\"]\ntier = \"bulk\""), &[]).len(), 1);
        assert_eq!(problems(&other("key = [\"id\", \"no\"]"), &[]).len(), 1);
    }

    #[test]
    fn a_stop_must_leave_time_after_the_drain() {
        assert_eq!(problems("[consume]\nshutdown_deadline = \"25s\"", &[]).len(), 1);
    }

    #[test]
    fn the_registry_may_be_absent_only_without_classes() {
        let text = MINIMAL.replace("[registry]\nurl = \"http://localhost:8081\"", "");
        assert_eq!(problems_of(&text, &[]).len(), 1);
        assert!(valid("kafka.bootstrap = [\"a:1\", \"b:2\"]", &[]).registry.is_none());
    }

    #[test]
    fn a_refusal_names_the_file_and_counts_its_problems() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shop.toml");
        std::fs::write(&path, MINIMAL).unwrap();
        Config::load(Some(&path), std::iter::empty()).unwrap();
        std::fs::write(&path, "[kafka]\nbootstrap = 9092\n").unwrap();
        let error = Config::load(Some(&path), std::iter::empty()).unwrap_err().to_string();
        let expected = format!(
            "1 problem in {}\n  kafka.bootstrap: it must be text, not a whole number; put it in quotes",
            path.display()
        );
        assert_eq!(error, expected);
    }

    #[test]
    fn an_unreadable_file_and_bad_syntax_say_where_to_look() {
        let missing =
            Config::load(Some(Path::new("/nonexistent/tidegate.toml")), std::iter::empty()).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/tidegate.toml"), "{missing}");
        let syntax = parse_with("[registry]\npassword = \"hunter2\n", &[]).unwrap_err().to_string();
        assert!(syntax.contains("at line 2, column") && !syntax.contains("hunter2"), "{syntax}");
    }

    #[test]
    fn a_window_or_heap_smaller_than_one_record_is_refused() {
        let found = problems("[topics]\nmax_message_bytes = \"65MiB\"\n[retry]\nheap_bytes = \"64MiB\"", &[]);
        let paths = found.iter().filter_map(|problem| problem.split(':').next()).collect::<Vec<_>>();
        assert_eq!(
            paths,
            [
                "tiers.bulk.window_bytes",
                "tiers.critical.window_bytes",
                "tiers.default.window_bytes",
                "retry.heap_bytes"
            ]
        );
    }

    #[test]
    fn order_is_not_kept_between_keys_that_never_repeat() {
        let text = MINIMAL.replace("key = [\"payment_id\"]", "key_by_position = true\nordering = \"key\"");
        assert_eq!(problems_of(&text, &[]).len(), 1);
    }

    #[test]
    fn a_source_that_nothing_reads_is_noted_but_allowed() {
        assert_eq!(valid(MINIMAL, &[]).notes(), [""; 0]);
        let unread = valid(&format!("{MINIMAL}[sources.orders]\nstart = \"latest\""), &[]);
        assert!(unread.notes()[0].contains("`orders`"));
    }
}

mod secrets {
    use super::*;

    #[test]
    fn no_secret_is_printed() {
        let env = [
            ("TIDEGATE_REGISTRY__USERNAME", "someone"),
            ("TIDEGATE_REGISTRY__PASSWORD", "hunter2"),
            ("TIDEGATE_KAFKA__PROPERTIES__SASL_PASSWORD", "hunter2"),
            ("TIDEGATE_CLASSES__CHARGE_CARD__HANDLER__HEADERS__AUTHORIZATION", "Bearer hunter2"),
        ];
        let config = valid(MINIMAL, &env);
        assert_eq!(config.kafka.properties.get("sasl.password"), Some("hunter2"));
        let printed = format!("{}{config:?}", config.effective());
        assert!(printed.contains("***"));
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}

mod overrides {
    use super::*;

    #[test]
    fn a_variable_wins_over_the_file() {
        let env = [
            ("TIDEGATE_KAFKA__BOOTSTRAP", "a:1,b:2"),
            ("TIDEGATE_CLASSES__CHARGE_CARD__TIME_LIMIT", "5s"),
            ("TIDEGATE_CLASSES__CHARGE_CARD__KEY", "payment_id, part"),
            ("TIDEGATE_SOURCES__SHOP_PAYMENTS_V1__START", "earliest"),
            ("TIDEGATE_TIERS__CRITICAL__CONCURRENCY", "8"),
            ("TIDEGATE_RETRY__JITTER", "0.1"),
        ];
        let config = valid(MINIMAL, &env);
        assert_eq!(config.kafka.bootstrap_servers(), "a:1,b:2");
        assert_eq!(the_class(&config).time_limit, Duration::from_secs(5));
        let KeySource::Fields(key) = &the_class(&config).key else { panic!("it has fields") };
        assert_eq!(key.len(), 2);
        assert_eq!(config.sources.values().next().unwrap().start, Start::Earliest);
        assert_eq!(config.tier(&"critical".parse().unwrap()).unwrap().concurrency.get(), 8);
        assert_eq!(config.retry.jitter.fraction(), 0.1);
    }

    #[test]
    fn a_variable_that_names_no_setting_is_refused_with_the_nearest_one() {
        assert_eq!(
            problems("", &[("TIDEGATE_CLASSES__CHARGE_CARD__TIME_LIMT", "5s")]),
            [
                "environment variable TIDEGATE_CLASSES__CHARGE_CARD__TIME_LIMT: it names no setting; did you mean \
                 TIDEGATE_CLASSES__CHARGE_CARD__TIME_LIMIT?"
            ]
        );
        assert_eq!(
            problems("", &[("TIDEGATE_KAFKA_BOOTSTRAP", "a:1")]),
            [
                "environment variable TIDEGATE_KAFKA_BOOTSTRAP: it names no setting; did you mean TIDEGATE_KAFKA__BOOTSTRAP?"
            ]
        );
    }

    #[test]
    fn a_wrong_value_names_the_variable() {
        assert_eq!(
            problems("", &[("TIDEGATE_TIERS__BULK__PARTITIONS", "0")]),
            [
                "tiers.bulk.partitions (from TIDEGATE_TIERS__BULK__PARTITIONS): 0 is out of range; choose a value \
                 from 1 to 10000"
            ]
        );
    }

    #[test]
    fn the_environment_alone_can_be_enough() {
        assert!(valid("", &[("TIDEGATE_KAFKA__BOOTSTRAP", "localhost:9092")]).classes.is_empty());
    }
}
