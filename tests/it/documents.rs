//! The documents speak of the code as it is.

use std::fs;
use std::path::Path;

/// A test that a row of the requirements names.
struct Named<'a> {
    /// Its module, as the document has it.
    module: &'a str,
    name: &'a str,
    /// The rows it proves: `R12` or `field 12`.
    rows: Vec<String>,
}

fn named(line: &str) -> Vec<Named<'_>> {
    let Some((row, proof)) = line.trim_matches('|').split_once('|') else {
        return Vec::new();
    };
    let kind = if row.contains("field") { "field " } else { "" };
    let rows = row.trim().trim_start_matches("field ").split(", ");
    let rows = rows.filter(|row| row.ends_with(|last: char| last.is_ascii_digit()));
    let rows: Vec<_> = rows.map(|row| format!("{kind}{row}")).collect();
    let code = proof.split('`').skip(1).step_by(2);
    code.filter_map(|code| code.rsplit_once("::"))
        .map(|(module, name)| Named {
            module,
            name,
            rows: rows.clone(),
        })
        .collect()
}

/// The lines above a test that belong to it, or nothing where there is no such test.
fn comment(root: &Path, test: &Named) -> Option<String> {
    let file = test.module.replace("::", "/");
    let files = match file.split_once('/') {
        Some((directory @ ("it" | "tls"), file)) => [format!("tests/{directory}/{file}.rs"), String::new()],
        _ => [format!("src/{file}.rs"), format!("src/{file}/tests.rs")],
    };
    let sources = files.iter().filter_map(|file| fs::read_to_string(root.join(file)).ok());
    let signature = format!("fn {}(", test.name);
    let found = sources.into_iter().find_map(|source| {
        let (before, _) = source.split_once(&signature)?;
        let lines = before.lines().rev().skip(1).map(str::trim);
        let own: Vec<_> = lines
            .take_while(|line| line.starts_with("//") || line.starts_with('#'))
            .collect();
        Some(own.join(" "))
    });
    found.map(|comment| format!("{comment} "))
}

#[test]
fn every_test_the_requirements_name_exists_and_names_its_row() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/requirements.md")).unwrap();
    let tests: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with('|'))
        .flat_map(named)
        .collect();
    assert!(tests.len() > 100, "{}", tests.len());
    for test in tests {
        let Named { module, name, rows } = &test;
        let comment = comment(root, &test).unwrap_or_else(|| panic!("{module}::{name} does not exist"));
        let words: Vec<_> = comment
            .split([',', ':', ' ', '.'])
            .filter(|word| !word.is_empty())
            .collect();
        let words = format!(" {} ", words.join(" "));
        for row in rows {
            assert!(
                words.contains(&format!(" {row} ")),
                "{module}::{name} does not name {row}"
            );
        }
    }
}

// R44
#[test]
fn the_readme_says_which_guard_treats_which_failure() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let mut lines = readme.lines().skip_while(|line| !line.starts_with("| what fails |"));
    let guards = lines.next().unwrap().split('|').count();
    let failures: Vec<_> = lines.skip(1).take_while(|line| line.starts_with('|')).collect();
    assert!(failures.len() >= 8, "{failures:?}");
    for failure in failures {
        let cells: Vec<_> = failure.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), guards, "{failure}");
        // None is treated by all of them, so that none can stand for the others.
        let treated = cells.iter().skip(2).filter(|cell| !cell.is_empty()).count();
        assert!((1..guards - 3).contains(&treated), "{failure}");
    }
}
