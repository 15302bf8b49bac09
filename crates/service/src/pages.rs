//! Pages by class, and answers about them that are shared.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use lru::LruCache;
use pathcast_decide::decision::http::{Choice, Key};
use pathcast_scenario::{Page, read_pages};

/// Most classes.
const CLASSES: usize = 1000;
/// Most answers that are kept, some hundred bytes each.
const ANSWERS: NonZeroUsize = NonZeroUsize::new(50_000).unwrap();

/// A page of a class.
#[derive(Debug)]
pub struct ClassPage {
    /// Differs between all pages that the service has had.
    number: u64,
    /// The page.
    pub page: Arc<Page>,
}

/// An answer that is kept.
#[derive(Debug, Clone)]
pub struct Kept {
    /// It.
    pub choice: Arc<Choice>,
    /// By how many loads.
    pub loads: usize,
}

/// The pages.
#[derive(Debug)]
pub struct Pages {
    classes: RwLock<(u64, BTreeMap<String, Arc<ClassPage>>)>,
    answers: Mutex<LruCache<(u64, Key), Kept>>,
    folder: Option<PathBuf>,
}

/// Whether a text may name a class.
pub fn is_class(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('.')
}

impl Pages {
    /// The pages of a folder; files that cannot be read are left out, and returned.
    pub fn open(folder: Option<PathBuf>) -> (Self, Vec<String>) {
        let pages = Self {
            classes: RwLock::default(),
            answers: Mutex::new(LruCache::new(ANSWERS)),
            folder,
        };
        let mut wrong = Vec::new();
        let files = pages
            .folder
            .as_ref()
            .and_then(|folder| fs::read_dir(folder).ok());
        for file in files.into_iter().flatten().flatten() {
            let path = file.path();
            let Some(class) = class_of(&path) else {
                continue;
            };
            let read = fs::read_to_string(&path).map_err(|error| error.to_string());
            let page =
                read.and_then(|text| Page::parse(&text, &class).map_err(|error| error.to_string()));
            match page {
                Ok(page) => pages.insert(&class, page),
                Err(error) => wrong.push(format!("{}: {error}", path.display())),
            }
        }
        (pages, wrong)
    }

    fn insert(&self, class: &str, page: Page) {
        let mut classes = self.classes.write().unwrap_or_else(PoisonError::into_inner);
        classes.0 += 1;
        let number = classes.0;
        let page = Arc::new(page);
        classes
            .1
            .insert(class.into(), Arc::new(ClassPage { number, page }));
    }

    /// Reads a page file or a recording, and keeps its first page by this class; what the file lacks.
    ///
    /// # Errors
    /// What is wrong with the file, or that there are too many classes, or that the disk does not take it.
    pub fn put(&self, class: &str, content: &[u8]) -> Result<Vec<String>, String> {
        // the readers of recordings meet files of any kind
        let read = std::panic::catch_unwind(|| read_pages(content, class))
            .map_err(|_| format!("{class}: the file cannot be read"))?
            .map_err(|error| error.to_string())?;
        let Some(first) = read.into_iter().next() else {
            return Err(format!("{class}: the file has no page"));
        };
        {
            let classes = self.classes.read().unwrap_or_else(PoisonError::into_inner);
            if classes.1.len() >= CLASSES && !classes.1.contains_key(class) {
                return Err(format!(
                    "{CLASSES} classes are kept, which is the most: remove one first"
                ));
            }
        }
        if let Some(folder) = &self.folder {
            let file = folder.join(format!("{class}.toml"));
            let temporary = folder.join(format!(".{class}.new"));
            let text = first.page.to_toml();
            fs::write(&temporary, text)
                .and_then(|()| fs::rename(&temporary, file))
                .map_err(|error| format!("{class}: cannot be kept: {error}"))?;
        }
        self.insert(class, first.page);
        Ok(first.warnings)
    }

    /// Removes a class; whether it was there.
    pub fn remove(&self, class: &str) -> bool {
        let mut classes = self.classes.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = &self.folder {
            let _ = fs::remove_file(folder.join(format!("{class}.toml")));
        }
        classes.1.remove(class).is_some()
    }

    /// The page of a class.
    pub fn get(&self, class: &str) -> Option<Arc<ClassPage>> {
        let classes = self.classes.read().unwrap_or_else(PoisonError::into_inner);
        classes.1.get(class).cloned()
    }

    /// Classes, with the number of resources and the bytes of each page.
    pub fn list(&self) -> Vec<(String, usize, u64)> {
        let classes = self.classes.read().unwrap_or_else(PoisonError::into_inner);
        let summed = classes.1.iter().map(|(class, one)| {
            (
                class.clone(),
                one.page.resources.len(),
                one.page.body_bytes(),
            )
        });
        summed.collect()
    }

    /// An answer that is kept.
    pub fn kept(&self, page: &ClassPage, key: Key) -> Option<Kept> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(&(page.number, key)).cloned()
    }

    /// Keeps an answer.
    pub fn keep(&self, page: &ClassPage, key: Key, kept: Kept) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.put((page.number, key), kept);
    }
}

fn class_of(path: &Path) -> Option<String> {
    let class = path.file_stem()?.to_str()?;
    (path.extension()? == "toml" && is_class(class)).then(|| class.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_back_from_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (pages, _) = Pages::open(Some(folder.path().into()));
        let text = b"[[resources]]\nurl = 'https://example.org/'\nsize = '31 kB'\n";
        assert!(pages.put("home", text).is_ok());
        assert!(pages.put("bad", b"{\"log\": 3}").is_err());
        fs::write(folder.path().join("broken.toml"), "[").unwrap();
        let (again, wrong) = Pages::open(Some(folder.path().into()));
        assert_eq!(again.list(), [("home".to_string(), 1, 31_000)]);
        assert_eq!(wrong.len(), 1);
        assert!(again.remove("home") && !again.remove("home"));
    }

    #[test]
    fn classes_are_plain_names() {
        assert!(is_class("home-2.v_1"));
        for name in ["", ".", "..", "a/b", "a b", ".hidden", &"x".repeat(65)] {
            assert!(!is_class(name), "{name}");
        }
    }
}
