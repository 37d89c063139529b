//! A page's frame: its style, its beginning and end, and what keeps text from being taken for HTML.

const STYLE: &str = "\
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 68rem; }
h1 { font-size: 1.6rem; margin: .3rem 0; overflow-wrap: anywhere; } h2 { font-size: 1.2rem; margin: 1.6rem 0 .4rem; }
h3 { font-size: 1rem; font-weight: 500; margin: 0 0 .3rem; }
.tables, .figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1.2rem 2rem; }
table { border-collapse: collapse; width: 100%; align-self: start; }
.wide { overflow-x: auto; }
th, td { text-align: left; padding: .15rem .6rem .15rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
td { font-variant-numeric: tabular-nums; } th { font-weight: 500; }
figure { margin: 0; break-inside: avoid; } figure svg[role] { width: 100%; max-width: 40rem; height: auto; display: block; }
figcaption { font-size: .95rem; } .legend { margin: .2rem 0; font-size: .85rem; }
.legend span { white-space: nowrap; margin-right: .8rem; }
.from { font-size: .75rem; opacity: .75; margin: .2rem 0 0; overflow-wrap: anywhere; }
.complaint { border-left: 4px solid #d55e00; padding-left: .6rem; }
pre { overflow-x: auto; font-size: .8rem; line-height: 1.35; background: #8881; padding: .6rem; }
@media print {
body { font-size: 10pt; max-width: none; padding: 0; } h2 { break-after: avoid; } a { color: inherit; }
.tables, .figures { grid-template-columns: 1fr 1fr; } pre { white-space: pre-wrap; font-size: 7.5pt; }
}
";

/// A page's beginning: its name, and what is to be said first.
pub fn beginning(name: &str, summary: &str) -> String {
    let (name, summary) = (escape(name), escape(summary));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{name}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<h1>{name}</h1>\n<p>{summary}</p>\n"
    )
}

/// A page's end.
pub const END: &str = "</body>\n</html>\n";

/// A chart in its frame: a title, what is to be said about it, and in `from`, as HTML, where it comes from, since figures
/// travel alone.
pub fn figure(title: &str, chart: &str, caption: &str, from: &str) -> String {
    let (title, caption) = (escape(title), escape(caption));
    format!("<figure>\n<h3>{title}</h3>\n{chart}<figcaption>{caption}</figcaption>\n{from}</figure>\n")
}

/// Text as it stands in HTML and SVG.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out() {
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
