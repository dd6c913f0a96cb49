//! The documents speak of the code as it is.

use std::path::Path;

#[test]
fn every_test_the_requirements_name_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("docs/requirements.md")).unwrap();
    let named: Vec<_> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|code| code.rsplit_once("::").filter(|(_, test)| !test.is_empty()))
        .collect();
    assert!(named.len() > 50, "{named:?}");
    for (module, test) in named {
        let file = module.replace("::", "/");
        let files = match file.split_once('/') {
            Some((directory @ ("it" | "tls"), file)) => [format!("tests/{directory}/{file}.rs"), String::new()],
            _ => [format!("src/{file}.rs"), format!("src/{file}/tests.rs")],
        };
        let mut sources = files
            .iter()
            .filter_map(|file| std::fs::read_to_string(root.join(file)).ok());
        let exists = sources.any(|source| source.contains(&format!("fn {test}(")));
        assert!(exists, "{module}::{test} is named and does not exist");
    }
}
