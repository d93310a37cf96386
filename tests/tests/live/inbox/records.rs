//! The records behind the items: gone ones, exported ones, and topics that were made anew.

use apache_avro::types::Value as Avro;
use serde_json::{Value, json};
use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{Task, tasks};

use super::operators::{Broken, LONG};

#[test]
fn an_item_whose_first_record_expired_is_replayed_from_its_newest() {
    let broken = Broken::with_dead("expired", &[Task::new("one").script("poison")]);
    let dlq = broken.jobs.pipeline.topic("dlq");
    assert_eq!(
        broken.run("ann", &["dlq", "replay", "--class", "task", "--yes"]).0,
        Exit(3),
        "it fails again"
    );
    let letters = broken.jobs.pipeline.wait_for_dead(2, LONG);
    assert_eq!(letters[0].partition, letters[1].partition);
    broken.jobs.pipeline.client.delete_records(&dlq, letters[0].partition, letters[1].offset);
    // An index that knew the first record, and one that never did.
    for operator in ["ann", "bob"] {
        let list: Value = broken.json(operator, 0, &["dlq", "list"]);
        assert_eq!(
            (&list["letters"], &list["state"]),
            (&json!(1), &json!("failed-again")),
            "{operator}: {list}"
        );
    }
    let calls = broken.calls.calls();
    broken.repair();
    broken.run("bob", &["dlq", "replay", "--class", "task", "--yes"]);
    assert_eq!(broken.calls.calls(), calls + 1, "it ran from the record that is left");
    // And where none is left, there is no item.
    let end = broken.jobs.pipeline.client.offsets(&dlq)[&letters[0].partition].1;
    broken.jobs.pipeline.client.delete_records(&dlq, letters[0].partition, end);
    for operator in ["ann", "cyd"] {
        assert_eq!(broken.run(operator, &["dlq", "list", "--json"]).1, "", "{operator}");
    }
}

#[test]
fn the_time_of_a_letter_is_the_brokers_whatever_clock_its_worker_had() {
    let broken = Broken::with_dead("clock", &tasks("t", 1));
    let record = tidegate_tests::kafka_io::Record::default().value("v").header("job-error-kind", "crash");
    broken
        .jobs
        .pipeline
        .client
        .produce(&broken.jobs.pipeline.topic("dlq"), &record.header("job-dead-at", "1000").timestamp(2000));
    let letters = broken.jobs.pipeline.wait_for_dead(2, LONG);
    let letter = letters.iter().find(|letter| letter.header("job-error-kind") == Some("crash")).unwrap();
    let list: Value = broken.json("ann", 0, &["dlq", "list", "--kind", "crash"]);
    assert_eq!(list["at"].as_i64(), letter.timestamp, "{list}");
    assert!(letter.timestamp > Some(1_000_000_000_000), "{letter}");
}

#[test]
fn originals_are_exported_byte_for_byte_as_lines_and_as_container_files() {
    let broken = Broken::with_dead("export", &tasks("t", 4));
    broken.jobs.pipeline.client.produce(
        &broken.jobs.pipeline.topic("dlq"),
        &tidegate_tests::kafka_io::Record::default().key("k").value(b"\xff\x00"),
    );
    let (exit, lines, _) = broken.run("ann", &["dlq", "export"]);
    assert_eq!((exit, lines.lines().count()), (Exit(0), 5));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("letters").display().to_string();
    let told = broken.json("ann", 0, &["dlq", "export", "--format", "avro", "--out", &out]);
    assert_eq!((&told["records"], &told["gone"]), (&json!(5), &json!(0)));
    let files: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    let avro = files.iter().find(|path| path.extension().is_some_and(|end| end == "avro")).unwrap();
    let reader = apache_avro::Reader::new(std::fs::File::open(avro).unwrap()).unwrap();
    let mut ids: Vec<String> = reader
        .map(|value| match value.unwrap() {
            Avro::Record(fields) => match &fields[0].1 {
                Avro::String(id) => id.clone(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    ids.sort();
    assert_eq!(ids, ["t-0", "t-1", "t-2", "t-3"]);
    let others = std::fs::read_to_string(folder.path().join("letters/others.jsonl")).unwrap();
    let other: Value = serde_json::from_str(others.trim()).unwrap();
    assert_eq!((&other["key"], &other["value"]), (&json!("aw=="), &json!("/wA=")));
    let lines = folder.path().join("letters.jsonl").display().to_string();
    for (format, out) in [("avro", &out), ("jsonl", &lines)] {
        let again = ["dlq", "export", "--format", format, "--out", out];
        let (exit, _, said) = if format == "avro" {
            broken.run("ann", &again)
        } else {
            assert_eq!(broken.run("ann", &again).0, Exit(0));
            broken.run("ann", &again)
        };
        assert!(exit != Exit(0) && said.contains("an export replaces nothing"), "{said}");
    }
}

#[test]
fn an_index_of_a_topic_that_was_made_anew_is_built_anew() {
    let broken = Broken::with_dead("anew", &tasks("t", 3));
    assert_eq!(broken.run("ann", &["dlq", "list", "--json"]).1.lines().count(), 3);
    let (client, dlq) = (&broken.jobs.pipeline.client, broken.jobs.pipeline.topic("dlq"));
    let partitions = client.partitions(&dlq);
    client.delete_topic(&dlq);
    client.create_topic(&dlq, partitions);
    let record = tidegate_tests::kafka_io::Record::default().value("v").header("job-error-kind", "crash");
    client.produce(&dlq, &record);
    let list: Value = broken.json("ann", 0, &["dlq", "list"]);
    assert_eq!(list["error"]["kind"], "crash", "{list}");
}

#[test]
fn who_looks_at_masked_fields_or_exports_them_by_the_command_line_is_in_the_journal() {
    let mut broken = Broken::with_dead("looks", &[Task::new("one")]);
    let place = broken.json("ann", 0, &["dlq", "list"])["record"].as_str().unwrap().to_owned();
    assert_eq!(broken.run("ann", &["dlq", "show", &place]).0, Exit(0));
    assert_eq!(broken.run("ann", &["dlq", "history"]).1, "", "nothing is masked, so nothing is revealed");
    broken.jobs.pipeline.configure("[console]\nmasked = [\"id\"]");
    let (exit, shown, stderr) = broken.run("ann", &["dlq", "show", &place]);
    assert!(exit == Exit(0) && shown.contains("one") && stderr.is_empty(), "{shown}\n{stderr}");
    assert_eq!(broken.run("bob", &["dlq", "export", "--class", "task"]).0, Exit(0));
    let history = broken.run("cyd", &["dlq", "history", "--json"]).1;
    let entries: Vec<Value> = history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = entries.iter().map(|entry| (&entry["by"], &entry["what"], &entry["reason"])).collect();
    let (reveal, export) = (json!("reveal"), json!("export"));
    assert_eq!(
        told,
        [
            (&json!("bob"), &export, &json!("1 item: classes [\"task\"]")),
            (&json!("ann"), &reveal, &Value::Null)
        ]
    );
    assert!(entries[1]["id"].as_str().unwrap().ends_with("/task"), "{history}");
}
