use super::*;

fn compile(text: &str, references: &[&str]) -> Result<Plan, SchemaError> {
    let (schema, references) = Schema::parse_str_with_list(text, references).expect("a schema");
    Plan::compile(&schema, &references)
}

fn fields(plan: &Plan, node: NodeId) -> Vec<(String, NodeId)> {
    match plan.node(node) {
        Node::Record { record, fields } => {
            let names = plan.record(record).fields.iter().map(|field| field.name.clone());
            names.zip(plan.children(fields).iter().copied()).collect()
        }
        other => panic!("{other:?} is no record"),
    }
}

#[test]
fn a_recursive_type_is_a_cycle_of_numbers() {
    let plan = compile(
        r#"{"type":"record","name":"a.List","fields":[{"name":"next","type":["null","List"]}]}"#,
        &[],
    );
    let plan = plan.expect("compiles");
    let (_, next) = &fields(&plan, plan.root())[0];
    let Node::Union(branches) = plan.node(*next) else { panic!("next is no union") };
    assert_eq!(plan.children(branches)[1], plan.root());
    assert_eq!(plan.type_name(plan.root()), "a.List");
}

#[test]
fn types_of_references_are_found_with_those_nested_in_them() {
    let address = r#"{"type":"record","name":"geo.Address","fields":[
        {"name":"kind","type":{"type":"enum","name":"Kind","symbols":["HOME"]}}]}"#;
    let order = r#"{"type":"record","name":"shop.Order","fields":[
        {"name":"to","type":"geo.Address"},{"name":"kind","type":"geo.Kind"}]}"#;
    let plan = compile(order, &[address]).expect("compiles");
    let order = fields(&plan, plan.root());
    let address = fields(&plan, order[0].1);
    assert_eq!(plan.type_name(order[0].1), "geo.Address");
    assert_eq!(order[1].1, address[0].1);
}

#[test]
fn a_type_is_found_by_its_alias() {
    let text = r#"{"type":"record","name":"a.E","fields":[
        {"name":"x","type":{"type":"record","name":"New","aliases":["Old"],"fields":[]}},
        {"name":"y","type":"a.Old"}]}"#;
    let plan = compile(text, &[]).expect("compiles");
    let fields = fields(&plan, plan.root());
    assert_eq!(fields[0].1, fields[1].1);
}

#[test]
fn a_fixed_type_keeps_its_logical_type_where_it_is_only_named() {
    let text = r#"{"type":"record","name":"E","fields":[
        {"name":"x","type":{"type":"fixed","name":"Money","size":8,"logicalType":"decimal","precision":9,"scale":2}},
        {"name":"y","type":"Money"}]}"#;
    let plan = compile(text, &[]).expect("compiles");
    let fields = fields(&plan, plan.root());
    let kind = BytesKind::Decimal { precision: 9, scale: 2 };
    assert_eq!(plan.node(fields[1].1), Node::Fixed { size: 8, kind, name: 0 });
    assert_eq!(fields[0].1, fields[1].1);
}

#[test]
fn a_decimal_of_absurd_precision_is_plain_bytes() {
    let text = r#"{"type":"bytes","logicalType":"decimal","precision":1000000000,"scale":1000000000}"#;
    let plan = compile(text, &[]).expect("compiles");
    assert_eq!(plan.node(plan.root()), Node::Bytes(BytesKind::Plain));
}

#[test]
fn one_name_for_two_types_is_refused() {
    let text = r#"{"type":"record","name":"E","fields":[
        {"name":"x","type":{"type":"enum","name":"K","symbols":["A"]}},
        {"name":"y","type":{"type":"enum","name":"K","symbols":["A","B"]}}]}"#;
    assert_eq!(compile(text, &[]).err(), Some(SchemaError::DefinedTwice("K".to_owned())));
}

#[test]
fn a_long_chain_of_references_is_no_deep_recursion() {
    let chain: Vec<String> = (0..2000)
        .map(|n| {
            format!(
                r#"{{"type":"record","name":"R{n}","fields":[{{"name":"f","type":["null","R{}"]}}]}}"#,
                n + 1
            )
        })
        .collect();
    let defined = r#"{"type":"record","name":"R2000","fields":[]}"#.to_owned();
    // Last first: the parser itself recurses through types that it hasn't met yet.
    let union = format!("[{}]", [vec![defined], chain.into_iter().rev().collect()].concat().join(","));
    assert!(compile(&union, &[]).is_ok());
}
