//! The graphs of `docs/your-own.md` are short, formatted, and train.

use tfc::Result;
use tfc_ir::diag::SourceMap;

#[test]
fn the_guide_to_your_own_trains() -> Result<()> {
    let guide = include_str!("../../docs/your-own.md");
    let graphs: Vec<&str> =
        guide.split("```graph\n").skip(1).filter_map(|part| part.split("```").next()).collect();
    assert_eq!(graphs.len(), 3, "an optimizer, a layer, a loss");
    for text in graphs {
        assert!(text.lines().filter(|l| !l.is_empty()).count() <= 20, "under 20 lines:\n{text}");
        let mut sources = SourceMap::default();
        let file = sources.add("own.graph", text);
        assert_eq!(tfc_ir::text::fmt(&sources, file).as_deref(), Ok(text));
        let module = tfc::compile(&tfc::parse(text)?)?;
        let first = module.call("train", ())?.scalar::<f32>("loss")?;
        let mut last = first;
        for _ in 0..60 {
            last = module.call("train", ())?.scalar::<f32>("loss")?;
        }
        assert!(last < 0.5 * first, "{first} to {last}:\n{text}");
    }
    Ok(())
}
