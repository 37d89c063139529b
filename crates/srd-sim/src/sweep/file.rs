//! Sweep files: TOML, read and complained about like scenarios.

use super::{Axis, Case, Combine, Figure, Seeds, Sweep, Value};
use crate::input::Scenario;
use srd_baselines::document::Document;
use srd_baselines::input::{InputError, listed, read_text, shown};
use srd_baselines::section::Section;
use std::path::Path;

/// Sections with their keys: what docs/SCENARIOS.md must explain.
pub const KEYS: [(&str, &[&str]); 3] = [
    ("top level", &["name", "text", "seeds", "combine", "case", "axis"]),
    ("case", &["name", "scenario", "set", "seeds", "show"]),
    ("axis", &["name", "text", "key", "values", "labels", "cases"]),
];

const FIGURES: [(&str, Figure); 7] = [
    ("ideal", Figure::Ideal),
    ("median", Figure::Median),
    ("slowest", Figure::Slowest),
    ("middle", Figure::Middle),
    ("spread", Figure::Spread),
    ("again", Figure::Again),
    ("spurious", Figure::Spurious),
];

const COMBINE: [(&str, Combine); 2] = [("each", Combine::Each), ("all", Combine::All)];

/// Most runs of a sweep.
const MOST_RUNS: usize = 1_000_000;

/// Where an override came from, that errors in it may be laid to the right door.
struct Blame<'a> {
    section: &'a Section<'a>,
    key: &'static str,
    sets: &'a [String],
}

impl Sweep {
    /// Reads the file at `path`. `sets` are overrides of every scenario, before the sweep's own. Everything is tried
    /// that a run will need, so that no sweep stops in the middle for an error in its file.
    pub fn load(path: &Path, sets: &[String]) -> Result<Sweep, InputError> {
        let text = read_text(path)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Sweep::parse(&text, &path.display().to_string(), directory, sets)
    }

    /// Reads `text`, called `file` in errors; scenarios are looked for in `directory`.
    pub fn parse(text: &str, file: &str, directory: &Path, sets: &[String]) -> Result<Sweep, InputError> {
        let document = Document::parse(text, file)?;
        let root = Section::root(&document, KEYS[0].1)?;
        let name = match root.text("name")? {
            Some(name) => name.to_string(),
            None => {
                Path::new(file).file_stem().map_or("sweep".into(), |stem| stem.to_string_lossy().into_owned())
            }
        };
        let usual = seeds(&root)?.unwrap_or(Seeds::one(1));
        let cases = cases(&document, directory, sets, &usual)?;
        let axes = axes(&document, &cases)?;
        let sweep = Sweep {
            name,
            text: root.text("text")?.unwrap_or_default().trim().to_string(),
            cases,
            axes,
            combine: root.word("combine", &COMBINE)?.unwrap_or(Combine::Each),
        };
        let runs = sweep.count();
        if runs > MOST_RUNS {
            return Err(root.error(format!("{runs} runs are too many: at most {MOST_RUNS}")));
        }
        Ok(sweep)
    }

    /// How many runs there will be.
    fn count(&self) -> usize {
        let of_case = |(number, case): (usize, &Case)| {
            let mine = self.axes.iter().filter(|axis| axis.cases.contains(&number));
            let values = mine.map(|axis| axis.values.len());
            let points = match self.combine {
                Combine::Each => 1 + values.sum::<usize>(),
                Combine::All => values.fold(1, usize::saturating_mul),
            };
            points.saturating_mul(case.seeds.iter().count())
        };
        self.cases.iter().enumerate().map(of_case).fold(0, usize::saturating_add)
    }
}

fn seeds(section: &Section<'_>) -> Result<Option<Seeds>, InputError> {
    let Some(text) = section.text("seeds")? else { return Ok(None) };
    text.parse().map(Some).map_err(|message: String| section.error_at("seeds", message))
}

fn cases(
    document: &Document,
    directory: &Path,
    sets: &[String],
    usual: &Seeds,
) -> Result<Vec<Case>, InputError> {
    let mut cases: Vec<Case> = Vec::new();
    for section in Section::all(document, "case")? {
        let section = section.only(KEYS[1].1)?;
        let file = section.needed("scenario", section.text("scenario")?, "\"incast-15.toml\"")?;
        let path = directory.join(file);
        let own = section.list("set", SETS, |item| item.text().map(String::from))?.unwrap_or_default();
        let name = match section.text("name")? {
            Some(name) => name.to_string(),
            None => path.file_stem().map_or(file.into(), |stem| stem.to_string_lossy().into_owned()),
        };
        if cases.iter().any(|case| case.name == name) {
            return Err(
                section.error(format!("another case is called {} already: give it a `name`", shown(&name)))
            );
        }
        let blame = Blame { section: &section, key: "set", sets: &own };
        let case = Case {
            name,
            scenario: path,
            seeds: seeds(&section)?.unwrap_or(usual.clone()),
            show: show(&section)?,
            sets: [sets, &own].concat(),
        };
        try_out(&case, &[], &blame)?;
        cases.push(case);
    }
    match cases.is_empty() {
        true => {
            Err(InputError::of(&document.file, "there is no [[case]]: each names a `scenario` to begin with"))
        }
        false => Ok(cases),
    }
}

const LABELS: &str = "a list of names, one for each of `values`";
const SETS: &str = "a list of overrides, such as [\"workload.size=64KB\"]";

fn show(section: &Section<'_>) -> Result<Vec<Figure>, InputError> {
    let words: Vec<&str> = FIGURES.iter().map(|(word, _)| *word).collect();
    let expected = format!("a list of {}", listed(&words));
    let figure = |word: &str| FIGURES.iter().find(|(name, _)| *name == word).map(|(_, figure)| *figure);
    let given = section.list("show", &expected, |item| figure(item.text()?))?;
    match given {
        Some(figures) if figures.is_empty() => {
            Err(section.error_at("show", format!("is empty: write {expected}")))
        }
        Some(figures) => Ok(figures),
        None => Ok(vec![Figure::Ideal, Figure::Spread, Figure::Again]),
    }
}

fn axes(document: &Document, cases: &[Case]) -> Result<Vec<Axis>, InputError> {
    let mut axes: Vec<Axis> = Vec::new();
    for section in Section::all(document, "axis")? {
        let section = section.only(KEYS[2].1)?;
        let key = section.text("key")?;
        let name = section.text("name")?.or(key);
        let name = section.needed("name", name, "\"first window\"")?.to_string();
        if axes.iter().any(|axis| axis.name == name) {
            return Err(section.error(format!("another axis is called {} already", shown(&name))));
        }
        let axis = Axis {
            name,
            text: section.text("text")?.unwrap_or_default().trim().to_string(),
            values: values(&section, key)?,
            cases: cases_of(&section, cases)?,
        };
        for value in &axis.values {
            let blame = Blame { section: &section, key: "values", sets: &value.sets };
            axis.cases.iter().try_for_each(|&case| try_out(&cases[case], &value.sets, &blame))?;
        }
        axes.push(axis);
    }
    Ok(axes)
}

fn values(section: &Section<'_>, key: Option<&str>) -> Result<Vec<Value>, InputError> {
    let values = match key {
        Some(key) => section.list("values", "a list of values for `key`", |item| {
            let name = item.value()?;
            Some(Value { sets: vec![format!("{key}={name}")], name })
        })?,
        None => {
            let expected =
                "a list of overrides, such as [\"transport.paths=1\"], or of lists of them; or a `key`";
            section.list("values", expected, |item| {
                let sets = item.texts().or_else(|| item.text().map(|set| vec![set.to_string()]))?;
                Some(Value { name: sets.join(", "), sets })
            })?
        }
    };
    let mut values = section.needed("values", values, "[0.5, 1]")?;
    if let Some(labels) = section.list("labels", LABELS, |item| item.text().map(String::from))? {
        if labels.len() != values.len() {
            let counts = format!("{} labels for {} values", labels.len(), values.len());
            return Err(section.error_at("labels", format!("{counts}: write {LABELS}")));
        }
        values.iter_mut().zip(labels).for_each(|(value, label)| value.name = label);
    }
    if let Some(twice) = values.iter().enumerate().find(|(n, value)| values[..*n].contains(value)) {
        return Err(section.error_at("values", format!("{} is there twice", shown(&twice.1.name))));
    }
    match values.is_empty() {
        true => Err(section.error_at("values", "is empty: there is nothing to change")),
        false => Ok(values),
    }
}

fn cases_of(section: &Section<'_>, cases: &[Case]) -> Result<Vec<usize>, InputError> {
    let named = |name: &str| cases.iter().position(|case| case.name == name);
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let expected = format!("a list of names of cases; there are {}", listed(&names));
    let given = section.list("cases", &expected, |item| named(item.text()?))?;
    Ok(given.unwrap_or_else(|| (0..cases.len()).collect()))
}

/// Reads a scenario as a run will, and lays an error in an override to the line of the sweep that has it.
fn try_out(case: &Case, sets: &[String], blame: &Blame<'_>) -> Result<(), InputError> {
    let all = [&case.sets, sets].concat();
    let path = &case.scenario;
    let text = read_text(path).map_err(|error| blame.section.error_at("scenario", error.to_string()))?;
    let directory = path.parent().unwrap_or(Path::new(""));
    Scenario::parse(&text, &path.display().to_string(), directory, &all).map(drop).map_err(
        |error| match blame.sets.iter().any(|set| error.place == format!("--set {set}")) {
            true => blame.section.error_at(blame.key, error.to_string().trim_start_matches("--set ")),
            false => error,
        },
    )
}
