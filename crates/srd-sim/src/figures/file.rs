//! Figures that are files: a folder of `figures/` beside the sources for each publication, in which `family.toml` is what its figures
//! have in common and every other file is a figure, or several that differ in what their `[[figure]]` says. They are part of the
//! program, and tests read them all. docs/contributing/README.md, "What a figure's file says", has all keys.

use super::measured::{self, Measured, Part};
use srd_baselines::document::{Content, Document, Node, entry};
use srd_baselines::input::InputError;
use srd_baselines::section::Section;
use std::sync::LazyLock;

// FILES: folder, path and text of each.
include!(concat!(env!("OUT_DIR"), "/figures.rs"));

const FAMILY: &str = "family.toml";
const SETS: &str = "a list of overrides, such as [\"program.hosts=16\"]";
const NUMBERS: &str = "a list of whole numbers";
const TEXTS: &str = "a list of texts";

/// What figures of a publication have in common.
#[derive(Debug)]
pub(super) struct Family {
    source: String,
    /// Fabric and hosts.
    pub(super) scenario: String,
    networks: Vec<Case>,
}

/// Overrides of a scenario.
#[derive(Clone, Default, Debug)]
pub(super) struct Sets {
    pub(super) always: Vec<String>,
    full: Vec<String>,
    quick: Vec<String>,
}

impl Sets {
    /// Those of a coarse figure, or of the other.
    pub(super) fn of(&self, quick: bool) -> impl Iterator<Item = String> {
        let more = if quick { &self.quick } else { &self.full };
        self.always.iter().chain(more).cloned()
    }
}

/// What is compared with others: a network and what its hosts run, or a point of the axis.
#[derive(Clone, Default, Debug)]
pub(super) struct Case {
    pub(super) label: String,
    /// Where it stands on an axis of numbers.
    pub(super) at: f64,
    pub(super) sets: Sets,
    /// What was published of it.
    pub(super) published: Option<String>,
    pub(super) drawn: bool,
    /// A coarse figure goes without it.
    only_full: bool,
    /// Of a series: the one point at which it is run.
    pub(super) only: Option<String>,
    /// That its runs do not end is a result.
    pub(super) may_fail: bool,
}

impl Case {
    /// One that nothing sets apart.
    fn plain(label: String, at: f64) -> Case {
        Case { label, at, drawn: true, ..Case::default() }
    }

    /// Whether a series is run at a point.
    pub(super) fn is_run_at(&self, point: &Case) -> bool {
        self.only.as_ref().is_none_or(|label| *label == point.label)
    }

    /// Those of a coarse figure, or all.
    pub(super) fn all(cases: &[Case], quick: bool) -> Vec<&Case> {
        cases.iter().filter(|case| !(quick && case.only_full)).collect()
    }
}

/// A figure: runs of a scenario for each series and each point of an axis, what is measured in them, and what is told of that.
#[derive(Debug)]
pub(super) struct FigureFile {
    pub(super) group: &'static str,
    /// Where it stands among the figures of its publication.
    pub(super) page: u64,
    pub(super) name: String,
    pub(super) title: String,
    pub(super) source: String,
    pub(super) caption: String,
    pub(super) scenario: String,
    pub(super) sets: Sets,
    /// Of the figure, and of a coarse one.
    pub(super) seeds: [u64; 2],
    /// How often a run is looked at on its way; likewise.
    pub(super) samples: Option<[u64; 2]>,
    pub(super) x: Abscissa,
    pub(super) y: Ordinate,
    pub(super) levels: Vec<(String, f64)>,
    pub(super) metrics: Vec<Metric>,
    /// Indices of the metrics that are drawn.
    pub(super) drawn: Vec<usize>,
    /// They are drawn as bars.
    pub(super) bars: Option<Bars>,
    /// What groups of bars are called, if not as the points are; or the bars of a group, if these are metrics.
    pub(super) names: Option<Vec<String>>,
    pub(super) findings: Vec<Words>,
    pub(super) series: Vec<Case>,
}

/// What the bars of a group are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bars {
    Networks,
    /// For each network.
    Metrics,
}

/// What changes from point to point.
#[derive(Debug)]
pub(super) struct Abscissa {
    pub(super) title: String,
    pub(super) points: Vec<Case>,
    /// Where the axis ends, if not at the last value.
    pub(super) most: Option<f64>,
    pub(super) logarithmic: bool,
    /// There is one point only, and the axis is the time of a run.
    pub(super) time: bool,
}

/// The axis of what is drawn.
#[derive(Debug)]
pub(super) struct Ordinate {
    pub(super) title: String,
    pub(super) least: End,
    pub(super) most: End,
    pub(super) logarithmic: bool,
}

/// Where an axis ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    At(f64),
    /// At so many times the least, or the most, of what is drawn.
    Times(f64),
    /// At the whole number that is at least so far below the least.
    Below(f64),
}

/// A number that is made of the runs of a point.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: String,
    pub(super) of: Of,
    /// Of the run; a line over time is of all of it.
    pub(super) part: Part,
    /// What of the values of a run.
    pub(super) take: Fold,
    /// What is made of the runs with different seeds.
    pub(super) over_seeds: Fold,
    /// By the value of the axis.
    pub(super) by_x: bool,
    /// In percent of this.
    pub(super) percent_of: Option<f64>,
    /// In percent of what one of so many gets of a host's link.
    pub(super) percent_of_link_by: Option<f64>,
    /// With so many digits behind the point.
    pub(super) digits: Option<usize>,
}

/// What is measured in a run.
#[derive(Debug)]
pub(super) enum Of {
    /// A figure of the program, as the catalogue calls it.
    Program(String),
    /// Of a workload, by its name, or of all of them.
    Run(Measured, Option<String>),
}

/// What is made of several values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fold {
    Least,
    Mean,
    Most,
    Sum,
    Last,
    Count,
    Median,
    Of100,
}

/// The first four are there of what a program says, too.
const FOLDS: [(&str, Fold); 8] = [
    ("least", Fold::Least),
    ("mean", Fold::Mean),
    ("most", Fold::Most),
    ("sum", Fold::Sum),
    ("last", Fold::Last),
    ("count", Fold::Count),
    ("median", Fold::Median),
    ("99 of 100", Fold::Of100),
];

/// A finding in words, with metrics in braces.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) of: For,
    pub(super) what: String,
    /// If not what the series, or the point, has.
    pub(super) published: Option<String>,
    /// What is said of the last value of the axis.
    pub(super) here: String,
    /// `here` is said of each value.
    pub(super) each_x: bool,
}

/// Of what there is a finding each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum For {
    One,
    Network,
    Value,
    NetworkAndValue,
    ValueAndNetwork,
}

const FORS: [(&str, For); 4] = [
    ("each network", For::Network),
    ("each value", For::Value),
    ("each network and value", For::NetworkAndValue),
    ("each value and network", For::ValueAndNetwork),
];

/// All figures that are files, by group and page; what is wrong in files that cannot be read.
static READ: LazyLock<(Vec<FigureFile>, Vec<String>)> = LazyLock::new(|| {
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for group in groups() {
        let (families, files): (Vec<_>, Vec<_>) = FILES
            .iter()
            .filter(|&&(folder, ..)| folder == group)
            .partition(|(_, path, _)| path.ends_with(FAMILY));
        let Some((_, path, text)) = families.first() else {
            wrong.push(format!("figures/{group} has no {FAMILY}: write one, with the source of its figures"));
            continue;
        };
        let family = match read_family(path, text) {
            Ok(family) => family,
            Err(error) => {
                wrong.push(error.to_string());
                continue;
            }
        };
        for (_, path, text) in files {
            match read_all(group, &family, path, text) {
                Ok(figures) => all.extend(figures),
                Err(error) => wrong.push(error.to_string()),
            }
        }
    }
    all.sort_by_key(|figure| (figure.group, figure.page));
    (all, wrong)
});

/// All figures that are files and can be read, by group and page.
pub(super) fn all() -> &'static [FigureFile] {
    &READ.0
}

/// What is wrong in files that cannot be read, of each the file, the line and what to write.
pub(super) fn wrong() -> &'static [String] {
    &READ.1
}

/// The folders.
pub(super) fn groups() -> Vec<&'static str> {
    let mut groups: Vec<&str> = FILES.iter().map(|&(group, _, _)| group).collect();
    groups.dedup();
    groups
}

/// What the figures of a folder have in common.
pub(super) fn family(group: &str) -> Family {
    let file = FILES.iter().find(|(folder, path, _)| *folder == group && path.ends_with(FAMILY));
    let (_, path, text) = file.unwrap_or_else(|| panic!("figures/{group} has no {FAMILY}"));
    read_family(path, text).unwrap_or_else(|error| panic!("tests read all figures: {error}"))
}

impl Family {
    /// The network that is called so.
    pub(super) fn network(&self, label: &str) -> Option<&Case> {
        self.networks.iter().find(|network| network.label == label)
    }
}

fn read_family(path: &str, text: &str) -> Result<Family, InputError> {
    let document = Document::parse(text, path)?;
    let root = Section::root(&document, &["source", "scenario", "network"])?;
    let mut family = Family {
        source: needed(&root, "source")?,
        scenario: root.text("scenario")?.unwrap_or_default().to_string(),
        networks: Vec::new(),
    };
    family.networks = cases(&document, "network", &family)?;
    Ok(family)
}

/// The figure of a file, or one for each `[[figure]]`, whose keys take the place of the file's.
fn read_all(
    group: &'static str,
    family: &Family,
    path: &str,
    text: &str,
) -> Result<Vec<FigureFile>, InputError> {
    let document = Document::parse(text, path)?;
    let Some(Content::List(figures)) = entry(&document.root, "figure").map(|node| &node.content) else {
        return Ok(vec![read(group, family, document)?]);
    };
    let one = |node: &Node| {
        let Content::Table(own) = &node.content else {
            return Err(document.error(&node.origin, "write [[figure]] with keys of its own"));
        };
        let shared = document.root.iter().filter(|(key, _)| key != "figure" && entry(own, key).is_none());
        let root = own.iter().chain(shared).cloned().collect();
        read(group, family, Document { file: document.file.clone(), root })
    };
    figures.iter().map(one).collect()
}

fn read(group: &'static str, family: &Family, mut document: Document) -> Result<FigureFile, InputError> {
    const KEYS: &str = "name title page caption scenario set full quick seeds quick_seeds samples quick_samples draw bars names x y \
                        level metric finding point series";
    networks_by_name(&mut document);
    let root = Section::root(&document, &keys(KEYS))?;
    let metrics = metrics(&document)?;
    let drawn = root.list("draw", "names of metrics, such as [\"mean\"]", |item| {
        let draw = item.text()?;
        metrics.iter().position(|metric| metric.name == draw)
    })?;
    let drawn = drawn.filter(|drawn| !drawn.is_empty());
    let mut levels = Vec::new();
    for section in Section::all(&document, "level")? {
        let section = section.only(&["label", "at"])?;
        levels.push((needed(&section, "label")?, section.needed("at", section.number("at", ANY)?, "27")?));
    }
    let seeds = root.whole("seeds", 1..=100)?.unwrap_or(1);
    let samples = root.whole("samples", 1..=10_000)?;
    let quick_samples = root.whole("quick_samples", 1..=10_000)?;
    let series = cases(&document, "series", family)?;
    let x = abscissa(&document, family)?;
    if let Some(series) = series.iter().find(|series| !x.points.iter().any(|point| series.is_run_at(point))) {
        return Err(root.error_at("series", format!("{} is run at a point that is not there", series.label)));
    }
    Ok(FigureFile {
        group,
        page: root.needed("page", root.whole("page", 1..=1000)?, "1")?,
        name: needed(&root, "name")?,
        title: needed(&root, "title")?,
        source: family.source.clone(),
        caption: needed(&root, "caption")?,
        scenario: family.scenario.clone() + root.text("scenario")?.unwrap_or_default(),
        sets: sets(&root)?,
        seeds: [seeds, root.whole("quick_seeds", 1..=seeds)?.unwrap_or(seeds)],
        samples: samples.map(|samples| [samples, quick_samples.unwrap_or(samples)]),
        x,
        y: ordinate(Section::of(&document, "y")?)?,
        levels,
        drawn: root.needed("draw", drawn, "[\"mean\"]")?,
        bars: root.word("bars", &[("networks", Bars::Networks), ("metrics", Bars::Metrics)])?,
        names: texts(&root, "names", TEXTS)?,
        metrics,
        findings: findings(&document)?,
        series: if series.is_empty() { vec![Case::plain(String::new(), 0.0)] } else { series },
    })
}

const ANY: std::ops::RangeInclusive<f64> = f64::MIN..=f64::MAX;

fn keys(text: &'static str) -> Vec<&'static str> {
    text.split(' ').collect()
}

fn needed(section: &Section<'_>, key: &str) -> Result<String, InputError> {
    section.needed(key, section.text(key)?, "\"...\"").map(String::from)
}

fn texts(section: &Section<'_>, key: &str, expected: &str) -> Result<Option<Vec<String>>, InputError> {
    section.list(key, expected, |item| item.text().map(String::from))
}

fn sets(section: &Section<'_>) -> Result<Sets, InputError> {
    let [always, full, quick] =
        ["set", "full", "quick"].map(|key| texts(section, key, SETS).map(Option::unwrap_or_default));
    Ok(Sets { always: always?, full: full?, quick: quick? })
}

/// A mere name in the list of series stands for a network of that name.
fn networks_by_name(document: &mut Document) {
    let series = document.root.iter_mut().find(|(key, _)| key == "series");
    let Some((_, Node { content: Content::List(items), .. })) = series else { return };
    for item in items.iter_mut().filter(|item| matches!(item.content, Content::Text(_))) {
        item.content = Content::Table(vec![("network".to_string(), item.clone())]);
    }
}

/// Networks, series or points.
fn cases(document: &Document, name: &str, family: &Family) -> Result<Vec<Case>, InputError> {
    const KEYS: &str = "network label at set full quick published drawn only_full only may_fail";
    let case = |(n, section): (usize, Section<'_>)| {
        let section = section.only(&keys(KEYS))?;
        let named = section.text("network")?;
        let network = match named.map(|label| family.network(label)) {
            Some(None) => return Err(section.error_at("network", "is not in family.toml")),
            Some(Some(network)) => network.clone(),
            None => Case::default(),
        };
        let at = section.number("at", ANY)?;
        let called = section.text("label")?.or(named).map(String::from);
        let label = called.or(at.map(|at| at.to_string()));
        let mut own = sets(&section)?;
        own.always.splice(0..0, network.sets.always);
        Ok(Case {
            label: section.needed("label", label, "\"...\"")?,
            at: at.unwrap_or(n as f64),
            sets: own,
            published: section.text("published")?.map(String::from).or(network.published),
            drawn: section.flag("drawn")?.unwrap_or(true),
            only_full: section.flag("only_full")?.unwrap_or(false),
            only: section.text("only")?.map(String::from),
            may_fail: section.flag("may_fail")?.unwrap_or(network.may_fail),
        })
    };
    Section::all(document, name)?.into_iter().enumerate().map(case).collect()
}

fn abscissa(document: &Document, family: &Family) -> Result<Abscissa, InputError> {
    let section = Section::of(document, "x")?;
    let section = section.only(&["key", "title", "values", "quick", "most", "logarithmic"])?;
    let (key, mut points) = (section.text("key")?, cases(document, "point", family)?);
    let [values, quick] = ["values", "quick"].map(|key| section.list(key, NUMBERS, |item| item.whole()));
    let (values, quick) = (values?.unwrap_or_default(), quick?);
    points.extend(values.into_iter().map(|value| Case {
        only_full: quick.as_ref().is_some_and(|quick| !quick.contains(&value)),
        ..Case::plain(value.to_string(), f64::from(value))
    }));
    let time = points.is_empty();
    if time {
        points.push(Case::plain(String::new(), 0.0));
    }
    for point in &mut points {
        point.sets.always.extend(key.map(|key| format!("{key}={}", point.at)));
    }
    Ok(Abscissa {
        title: section.text("title")?.unwrap_or_default().to_string(),
        points,
        most: section.number("most", ANY)?,
        logarithmic: section.flag("logarithmic")?.unwrap_or(false),
        time,
    })
}

fn ordinate(section: Section<'_>) -> Result<Ordinate, InputError> {
    let keys = ["title", "least", "least_times", "least_below", "most", "most_times", "logarithmic"];
    let section = section.only(&keys)?;
    let end = |at: &str, times: &str, below: &str| {
        let below = if section.may_have(below) { section.number(below, ANY)? } else { None };
        match (section.number(at, ANY)?, section.number(times, ANY)?, below) {
            (Some(at), None, None) => Ok(End::At(at)),
            (None, Some(times), None) => Ok(End::Times(times)),
            (None, None, Some(below)) => Ok(End::Below(below)),
            _ => Err(section.error(format!("write either `{at}` or `{times}`"))),
        }
    };
    Ok(Ordinate {
        title: needed(&section, "title")?,
        least: end("least", "least_times", "least_below")?,
        most: end("most", "most_times", "most_below")?,
        logarithmic: section.flag("logarithmic")?.unwrap_or(false),
    })
}

fn metrics(document: &Document) -> Result<Vec<Metric>, InputError> {
    const KEYS: &str = "name of workload part take over_seeds by_x percent_of percent_of_link_by digits";
    let metric = |section: Section<'_>| {
        let section = section.only(&keys(KEYS))?;
        let of = needed(&section, "of")?;
        let run = measured::ALL.iter().find(|measured| measured.what == of);
        let folds = if run.is_some() { &FOLDS[..] } else { &FOLDS[..4] };
        Ok(Metric {
            name: needed(&section, "name")?,
            of: match run {
                Some(&measured) => Of::Run(measured, section.text("workload")?.map(String::from)),
                None => Of::Program(of),
            },
            part: section.word("part", &measured::PARTS)?.unwrap_or(Part::All),
            take: section.word("take", folds)?.unwrap_or(Fold::Mean),
            over_seeds: section.word("over_seeds", &FOLDS)?.unwrap_or(Fold::Mean),
            by_x: section.flag("by_x")?.unwrap_or(false),
            percent_of: section.number("percent_of", ANY)?,
            percent_of_link_by: section.number("percent_of_link_by", ANY)?,
            digits: section.whole("digits", 0..=9)?.map(|digits| digits as usize),
        })
    };
    Section::all(document, "metric")?.into_iter().map(metric).collect()
}

fn findings(document: &Document) -> Result<Vec<Words>, InputError> {
    let words = |section: Section<'_>| {
        let section = section.only(&["for", "what", "published", "here", "here_each"])?;
        let each = section.text("here_each")?;
        let here = section.needed("here", each.or(section.text("here")?), "\"{mean} us\"")?;
        Ok(Words {
            of: section.word("for", &FORS)?.unwrap_or(For::One),
            what: needed(&section, "what")?,
            published: section.text("published")?.map(String::from),
            here: here.to_string(),
            each_x: each.is_some(),
        })
    };
    Section::all(document, "finding")?.into_iter().map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::lab::Lab;

    #[test]
    fn every_file_can_be_read() {
        assert!(wrong().is_empty(), "{:?}", wrong());
        assert!(all().len() > 20);
    }

    #[test]
    fn networks_are_what_they_are_called() {
        let program = "[[program]]\nkind = \"barrier\"\nhosts = 16\nplacement = \"random\"\n";
        let family = family("sandia");
        for network in &family.networks {
            let scenario = Lab::scenario(&(family.scenario.clone() + program), &network.sets.always);
            let pauses = scenario.settings.queues.pause.is_some();
            let lossless = network.label.contains("pause") || network.label.contains("InfiniBand");
            assert_eq!(pauses, lossless, "{}", network.label);
            let kind = scenario.settings.transports[0].name.as_str();
            let words = [
                ("iwarp", "iWARP"),
                ("roce", "InfiniBand"),
                ("tcp", "TCP"),
                ("nscc", "NSCC"),
                ("srd", "SRD"),
            ];
            let (_, word) = words.into_iter().find(|(name, _)| *name == kind).expect("one of these");
            assert!(network.label.contains(word), "{} is {kind}", network.label);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_file_and_line() {
        let text = "metric = [{ name = \"m\", of = \"payload\" }]\ncaption = \"c\"\ny = { title = \"t\", least = 0, most = 1 }\n\n[[figure]]\nname = \"n\"\ntitle = \"t\"\n";
        let told = |more: &str| {
            let read = read_all("sandia", &family("sandia"), "a.toml", &format!("{text}{more}"));
            read.map(|all| all.len()).map_err(|error| error.to_string())
        };
        assert_eq!(told("page = 1\ndraw = [\"m\"]\n"), Ok(1));
        let wrong = [
            ("page = 1\n", "a.toml:1: the top level: `draw` is missing"),
            ("pages = 1\n", "a.toml:8: the top level has no key `pages`"),
            (
                "page = 1\nseries = [\"Token Ring\"]\n",
                "a.toml:9: [[series]] 0 network: is not in family.toml",
            ),
            (
                "page = 1\ndraw = [\"mean\"]\n",
                "a.toml:9: the top level draw: \"mean\" cannot be: write names of metrics",
            ),
        ];
        for (more, expected) in wrong {
            let error = told(more).expect_err(more);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
