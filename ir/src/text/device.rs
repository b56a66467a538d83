//! Device names: `/job:ps/task:0/cpu:0`, each part optional.

/// The outer placement with what the inner one says in its stead.
pub fn merge(outer: &str, inner: &str) -> String {
    let mut parts: [Option<&str>; 3] = [None; 3];
    for name in [outer, inner] {
        for part in name.split('/').filter(|p| !p.is_empty()) {
            parts[rank(part)] = Some(part);
        }
    }
    parts.into_iter().flatten().map(|p| format!("/{p}")).collect()
}

fn rank(part: &str) -> usize {
    match part.split(':').next() {
        Some("job") => 0,
        Some("task") => 1,
        _ => 2,
    }
}

/// The part of a device name that says which process, if it does.
pub fn task(name: &str) -> Option<&str> {
    let at = name.find("/task:")?;
    let end = name[at + 1..].find('/').map_or(name.len(), |n| at + 1 + n);
    name.starts_with("/job:").then(|| &name[..end])
}

/// The part that says which device of a process; none if it says nothing.
pub fn local(name: &str) -> Option<&str> {
    let at = name.rfind("/cpu").or_else(|| name.rfind("/gpu"))?;
    Some(&name[at..])
}

/// What is wrong with a device name, if anything.
pub fn check(name: &str) -> Result<(), String> {
    if !name.starts_with('/') || name.len() == 1 {
        return Err("a device name starts with `/`, as in \"/job:ps/task:0/cpu:0\"".to_string());
    }
    let mut last = None;
    for part in name[1..].split('/') {
        let (key, value) = part.split_once(':').unwrap_or((part, ""));
        let number = value.parse::<u32>().is_ok();
        match key {
            "job" if !value.is_empty() => {}
            "task" | "cpu" | "gpu" if number => {}
            "cpu" | "gpu" if !part.contains(':') => {}
            "task" | "cpu" | "gpu" => return Err(format!("`{part}` needs a number after `:`")),
            "job" => return Err("`job` needs a name after `:`".to_string()),
            _ => return Err(format!("`{part}` is not `job:NAME`, `task:N`, `cpu:N` or `gpu:N`")),
        }
        if last.is_some_and(|l| l >= rank(part)) {
            return Err("the parts come in the order job, task, device, each once".to_string());
        }
        last = Some(rank(part));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_parts_win() {
        assert_eq!(merge("/job:ps/cpu:0", "/cpu:1"), "/job:ps/cpu:1");
        assert_eq!(merge("/cpu:0", "/job:w/task:2"), "/job:w/task:2/cpu:0");
    }

    #[test]
    fn parts_of_names() {
        assert_eq!(task("/job:ps/task:1/cpu:0"), Some("/job:ps/task:1"));
        assert_eq!((task("/job:ps"), task("/task:1"), task("/cpu:0")), (None, None, None));
        assert_eq!(local("/job:ps/task:1/cpu:0"), Some("/cpu:0"));
        assert_eq!((local("/gpu"), local("/job:ps/task:1")), (Some("/gpu"), None));
    }

    #[test]
    fn names_are_checked() {
        for good in ["/job:ps/task:0/cpu:0", "/cpu", "/gpu:1", "/task:3"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["cpu:0", "/", "/tpu:0", "/task:x", "/cpu:0/job:a", "/job:"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
