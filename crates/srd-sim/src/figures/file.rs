//! Figures that are files: a folder of `figures/` beside the sources for each publication, in which `family.toml` is what its figures
//! have in common and every other file is a figure. They are part of the program, and tests read them all.

use srd_baselines::document::Document;
use srd_baselines::input::InputError;
use srd_baselines::section::Section;
use std::sync::LazyLock;

// FILES: folder, path and text of each.
include!(concat!(env!("OUT_DIR"), "/figures.rs"));

const FAMILY: &str = "family.toml";
const SETS: &str = "a list of overrides, such as [\"program.hosts=16\"]";
const NUMBERS: &str = "a list of whole numbers";

/// What figures of a publication have in common.
#[derive(Debug)]
pub(super) struct Family {
    source: String,
    /// Fabric and hosts.
    pub(super) scenario: String,
    networks: Vec<Network>,
}

/// A network, and what its hosts run.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) label: String,
    pub(super) sets: Vec<String>,
    /// That its runs do not end is a result.
    pub(super) may_fail: bool,
}

/// A figure: a program on several networks, with one key of the scenario that changes.
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
    /// Overrides of all runs; of all, and of a coarse figure's.
    pub(super) sets: Vec<String>,
    pub(super) full: Vec<String>,
    pub(super) quick: Vec<String>,
    pub(super) seeds: u64,
    pub(super) quick_seeds: u64,
    pub(super) x: Abscissa,
    pub(super) y: Ordinate,
    pub(super) levels: Vec<(String, f64)>,
    pub(super) metrics: Vec<Metric>,
    /// Index of the metric that is drawn.
    pub(super) drawn: usize,
    pub(super) findings: Vec<Words>,
    pub(super) series: Vec<Series>,
}

/// What changes from point to point.
#[derive(Debug)]
pub(super) struct Abscissa {
    /// The key of the scenario.
    pub(super) key: String,
    pub(super) title: String,
    pub(super) values: Vec<u32>,
    pub(super) quick: Vec<u32>,
    /// Where the axis ends, if not at the last value.
    pub(super) most: Option<f64>,
    pub(super) logarithmic: bool,
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
}

/// A number that is made of the runs of a point.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: String,
    pub(super) of: Measured,
    /// What is made of the runs with different seeds.
    pub(super) over_seeds: Fold,
    /// By the value of the axis.
    pub(super) by_x: bool,
    /// In percent of this.
    pub(super) percent_of: Option<f64>,
}

/// What is measured in a run.
#[derive(Debug)]
pub(super) enum Measured {
    /// A figure of the program, as the catalogue calls it, and what of its values.
    Program(String, Fold),
    /// Packets dropped.
    Dropped,
    /// Packets retransmitted.
    Retransmitted,
}

/// What is made of several values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fold {
    Least,
    Mean,
    Most,
    Sum,
}

const FOLDS: [(&str, Fold); 4] =
    [("least", Fold::Least), ("mean", Fold::Mean), ("most", Fold::Most), ("sum", Fold::Sum)];

/// A finding in words, with metrics in braces.
#[derive(Debug)]
pub(super) struct Words {
    /// There is one for each network, and what was published stands there.
    pub(super) of_each: bool,
    pub(super) what: String,
    pub(super) published: String,
    /// What is said of the last value of the axis.
    pub(super) here: String,
    /// `here` is said of each value.
    pub(super) each_x: bool,
}

/// A line.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) network: Network,
    pub(super) published: String,
    pub(super) drawn: bool,
}

/// All figures that are files, by group and page.
pub(super) static ALL: LazyLock<Vec<FigureFile>> = LazyLock::new(|| {
    let files = FILES.iter().filter(|(_, path, _)| !path.ends_with(FAMILY));
    let figure = |&(group, path, text): &(&'static str, &str, &str)| {
        read(group, path, text).unwrap_or_else(|error| panic!("tests read all figures: {error}"))
    };
    let mut all: Vec<FigureFile> = files.map(figure).collect();
    all.sort_by_key(|figure| (figure.group, figure.page));
    all
});

/// What the figures of a folder have in common.
pub(super) fn family(group: &str) -> Family {
    let file = FILES.iter().find(|(folder, path, _)| *folder == group && path.ends_with(FAMILY));
    let (_, path, text) = file.unwrap_or_else(|| panic!("figures/{group} has no {FAMILY}"));
    read_family(path, text).unwrap_or_else(|error| panic!("tests read all figures: {error}"))
}

impl Family {
    /// The network that is called so.
    pub(super) fn network(&self, label: &str) -> Option<&Network> {
        self.networks.iter().find(|network| network.label == label)
    }

    /// All networks.
    #[cfg(test)]
    pub(super) fn networks(&self) -> &[Network] {
        &self.networks
    }
}

fn read_family(path: &str, text: &str) -> Result<Family, InputError> {
    let document = Document::parse(text, path)?;
    let root = Section::root(&document, &["source", "scenario", "network"])?;
    let mut networks = Vec::new();
    for section in Section::all(&document, "network")? {
        let section = section.only(&["label", "set", "may_fail"])?;
        networks.push(Network {
            label: needed(&section, "label")?,
            sets: sets(&section, "set")?,
            may_fail: section.flag("may_fail")?.unwrap_or(false),
        });
    }
    Ok(Family { source: needed(&root, "source")?, scenario: needed(&root, "scenario")?, networks })
}

fn read(group: &'static str, path: &str, text: &str) -> Result<FigureFile, InputError> {
    const KEYS: [&str; 17] = [
        "name",
        "title",
        "page",
        "caption",
        "scenario",
        "set",
        "full",
        "quick",
        "seeds",
        "quick_seeds",
        "draw",
        "x",
        "y",
        "level",
        "metric",
        "finding",
        "series",
    ];
    let family = family(group);
    let document = Document::parse(text, path)?;
    let root = Section::root(&document, &KEYS)?;
    let metrics = metrics(&document)?;
    let draw = needed(&root, "draw")?;
    let drawn = metrics.iter().position(|metric| metric.name == draw);
    let mut levels = Vec::new();
    for section in Section::all(&document, "level")? {
        let section = section.only(&["label", "at"])?;
        levels.push((needed(&section, "label")?, section.needed("at", section.number("at", ANY)?, "27")?));
    }
    let seeds = root.whole("seeds", 1..=100)?.unwrap_or(1);
    Ok(FigureFile {
        group,
        page: root.needed("page", root.whole("page", 1..=1000)?, "1")?,
        name: needed(&root, "name")?,
        title: needed(&root, "title")?,
        source: family.source.clone(),
        caption: needed(&root, "caption")?,
        scenario: family.scenario.clone() + &needed(&root, "scenario")?,
        sets: sets(&root, "set")?,
        full: sets(&root, "full")?,
        quick: sets(&root, "quick")?,
        seeds,
        quick_seeds: root.whole("quick_seeds", 1..=seeds)?.unwrap_or(seeds),
        x: abscissa(Section::of(&document, "x")?)?,
        y: ordinate(Section::of(&document, "y")?)?,
        levels,
        drawn: drawn.ok_or_else(|| root.error_at("draw", "names no [[metric]]"))?,
        metrics,
        findings: findings(&document)?,
        series: series(&document, &family)?,
    })
}

const ANY: std::ops::RangeInclusive<f64> = f64::MIN..=f64::MAX;

fn needed(section: &Section<'_>, key: &str) -> Result<String, InputError> {
    section.needed(key, section.text(key)?, "\"...\"").map(String::from)
}

fn sets(section: &Section<'_>, key: &str) -> Result<Vec<String>, InputError> {
    Ok(section.list(key, SETS, |item| item.text().map(String::from))?.unwrap_or_default())
}

fn abscissa(section: Section<'_>) -> Result<Abscissa, InputError> {
    let section = section.only(&["key", "title", "values", "quick", "most", "logarithmic"])?;
    let values = section.list("values", NUMBERS, |item| item.whole())?;
    let values = section.needed("values", values.filter(|values| !values.is_empty()), "[16, 32]")?;
    Ok(Abscissa {
        key: needed(&section, "key")?,
        title: needed(&section, "title")?,
        quick: section.list("quick", NUMBERS, |item| item.whole())?.unwrap_or_else(|| values.clone()),
        values,
        most: section.number("most", ANY)?,
        logarithmic: section.flag("logarithmic")?.unwrap_or(false),
    })
}

fn ordinate(section: Section<'_>) -> Result<Ordinate, InputError> {
    let section = section.only(&["title", "least", "least_times", "most", "most_times", "logarithmic"])?;
    let end = |at: &str, times: &str| match (section.number(at, ANY)?, section.number(times, ANY)?) {
        (Some(at), None) => Ok(End::At(at)),
        (None, Some(times)) => Ok(End::Times(times)),
        _ => Err(section.error(format!("write either `{at}` or `{times}`"))),
    };
    Ok(Ordinate {
        title: needed(&section, "title")?,
        least: end("least", "least_times")?,
        most: end("most", "most_times")?,
        logarithmic: section.flag("logarithmic")?.unwrap_or(false),
    })
}

fn metrics(document: &Document) -> Result<Vec<Metric>, InputError> {
    let metric = |section: Section<'_>| {
        let section = section.only(&["name", "of", "take", "over_seeds", "by_x", "percent_of"])?;
        let of = needed(&section, "of")?;
        let take = section.word("take", &FOLDS)?.unwrap_or(Fold::Mean);
        Ok(Metric {
            name: needed(&section, "name")?,
            of: match of.as_str() {
                "packets dropped" => Measured::Dropped,
                "packets sent again" => Measured::Retransmitted,
                _ => Measured::Program(of, take),
            },
            over_seeds: section.word("over_seeds", &FOLDS)?.unwrap_or(Fold::Mean),
            by_x: section.flag("by_x")?.unwrap_or(false),
            percent_of: section.number("percent_of", ANY)?,
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
            of_each: section.word("for", &[("each network", ())])?.is_some(),
            what: needed(&section, "what")?,
            published: section.text("published")?.unwrap_or_default().to_string(),
            here: here.to_string(),
            each_x: each.is_some(),
        })
    };
    Section::all(document, "finding")?.into_iter().map(words).collect()
}

fn series(document: &Document, family: &Family) -> Result<Vec<Series>, InputError> {
    let series = |section: Section<'_>| {
        let section = section.only(&["network", "published", "drawn"])?;
        let label = needed(&section, "network")?;
        let network = family.network(&label);
        Ok(Series {
            network: network.ok_or_else(|| section.error_at("network", "is not in family.toml"))?.clone(),
            published: section.text("published")?.unwrap_or_default().to_string(),
            drawn: section.flag("drawn")?.unwrap_or(true),
        })
    };
    Section::all(document, "series")?.into_iter().map(series).collect()
}
