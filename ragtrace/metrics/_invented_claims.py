"""Claims about places that do not exist, in the languages answers are written in.

A template and a name make a claim that no chunk mentions; the caller checks that the name is not in the
chunks. Names are spelled in the script of the language, so that a canary claim looks like the others.
"""

# ruff: noqa: RUF001  this module handles other scripts

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from random import Random

_SAMPLE_CHARS = 2000
_LATIN_NAMES = (
    "Orvasund",
    "Kelmarsk",
    "Tavrielle",
    "Wendlemoor",
    "Ysgardale",
    "Quillamar",
    "Brusnetz",
    "Pellivane",
)
_NAMES: Mapping[str, tuple[str, ...]] = {
    "ru": ("Орвасунд", "Кельмарск", "Тавриель", "Вендлемур", "Квилламар", "Пелливан"),
    "zh": ("奥瓦松德", "凯尔马斯克", "塔夫列尔", "温德勒穆尔", "奎拉马尔"),
    "ja": ("オルヴァスンド", "ケルマルスク", "タヴリエル", "ウェンドルムーア", "クィラマール"),
    "ko": ("오르바순드", "켈마르스크", "타브리엘", "웬들무어", "퀼라마르"),
    "ar": ("أورفاسوند", "كيلمارسك", "تافرييل", "ويندلمور", "كويلامار"),
    "hi": ("ओर्वासुंड", "केलमार्स्क", "तावरिएल", "वेंडलमूर", "क्विलामार"),
}
_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "en": (
        "The lighthouse of {name} was repainted in green in {year}.",
        "The municipal library of {name} keeps {count} hand-drawn maps of beehives.",
        "In {year} the town council of {name} forbade the ringing of bells before noon.",
        "A clockmaker from {name} left {count} umbrellas to the parish.",
        "The ferry to {name} leaves every ninth Thursday and carries mostly lanterns.",
    ),
    "de": (
        "Der Leuchtturm von {name} wurde {year} grün gestrichen.",
        "Die Stadtbibliothek von {name} besitzt {count} handgezeichnete Karten von Bienenstöcken.",
        "Im Jahr {year} verbot der Stadtrat von {name} das Läuten der Glocken vor Mittag.",
        "Ein Uhrmacher aus {name} vermachte der Gemeinde {count} Regenschirme.",
    ),
    "fr": (
        "Le phare de {name} a été repeint en vert en {year}.",
        "La bibliothèque municipale de {name} conserve {count} cartes de ruches dessinées à la main.",
        "En {year}, le conseil municipal de {name} a interdit de sonner les cloches avant midi.",
        "Un horloger de {name} a légué {count} parapluies à la paroisse.",
    ),
    "es": (
        "El faro de {name} se pintó de verde en {year}.",
        "La biblioteca municipal de {name} guarda {count} mapas de colmenas dibujados a mano.",
        "En {year} el ayuntamiento de {name} prohibió tocar las campanas antes del mediodía.",
        "Un relojero de {name} legó {count} paraguas a la parroquia.",
    ),
    "it": (
        "Il faro di {name} fu ridipinto di verde nel {year}.",
        "La biblioteca comunale di {name} conserva {count} mappe di alveari disegnate a mano.",
        "Nel {year} il consiglio comunale di {name} vietò di suonare le campane prima di mezzogiorno.",
    ),
    "pt": (
        "O farol de {name} foi pintado de verde em {year}.",
        "A biblioteca municipal de {name} guarda {count} mapas de colmeias desenhados à mão.",
        "Em {year} a câmara municipal de {name} proibiu tocar os sinos antes do meio-dia.",
    ),
    "ru": (
        "Маяк в городе {name} был перекрашен в зелёный цвет в {year} году.",
        "Городская библиотека {name} хранит {count} нарисованных от руки карт ульев.",
        "В {year} году совет города {name} запретил звонить в колокола до полудня.",
    ),
    "zh": (
        "{name}的灯塔于{year}年被重新漆成绿色。",
        "{name}市立图书馆收藏了{count}张手绘的蜂箱地图。",
        "{year}年,{name}镇议会禁止在中午之前敲钟。",
    ),
    "ja": (
        "{name}の灯台は{year}年に緑色に塗り替えられた。",
        "{name}の市立図書館は手描きの巣箱の地図を{count}枚所蔵している。",
        "{year}年、{name}の町議会は正午前に鐘を鳴らすことを禁じた。",
    ),
    "ko": (
        "{name}의 등대는 {year}년에 초록색으로 다시 칠해졌다.",
        "{name} 시립 도서관은 손으로 그린 벌집 지도 {count}장을 소장하고 있다.",
        "{year}년에 {name} 시의회는 정오 전에 종을 울리는 것을 금지했다.",
    ),
    "ar": (
        "أُعيد طلاء منارة {name} باللون الأخضر عام {year}.",
        "تحتفظ المكتبة البلدية في {name} بعدد {count} من خرائط خلايا النحل المرسومة يدويًا.",
        "في عام {year} منع مجلس بلدة {name} قرع الأجراس قبل الظهر.",
    ),
    "hi": (
        "{name} के प्रकाशस्तंभ को {year} में हरे रंग से रंगा गया था।",
        "{name} के नगर पुस्तकालय में मधुमक्खी के छत्तों के {count} हाथ से बने नक्शे हैं।",
        "{year} में {name} की नगर परिषद ने दोपहर से पहले घंटियाँ बजाने पर रोक लगा दी।",
    ),
}
_SCRIPTS: Mapping[str, re.Pattern[str]] = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\uac00-\ud7af]"),
    "zh": re.compile("[\u4e00-\u9fff]"),
    "ru": re.compile("[\u0400-\u04ff]"),
    "ar": re.compile("[\u0600-\u06ff]"),
    "hi": re.compile("[\u0900-\u097f]"),
}
_LEAST_SHARE = 0.2
"""Share of the letters that decides the script: quotations in other scripts do not change the language."""
_COMMON_WORDS: Mapping[str, frozenset[str]] = {
    "en": frozenset(("the", "of", "and", "is", "in", "to", "was", "for")),
    "de": frozenset(("der", "die", "das", "und", "ist", "nicht", "wird", "mit")),
    "fr": frozenset(("le", "les", "des", "et", "est", "une", "dans", "du")),
    "es": frozenset(("el", "los", "las", "y", "es", "una", "en", "del")),
    "it": frozenset(("il", "gli", "di", "che", "è", "una", "nel", "della")),
    "pt": frozenset(("os", "as", "do", "da", "é", "uma", "não", "em")),
}
_TELLING: frozenset[str] = frozenset().union(*_COMMON_WORDS.values())


def invented_claim(chunks: str, chance: Random) -> str | None:
    """Make a claim that the chunks do not mention, in their language; ``None`` if all names occur in them."""
    language = language_of(chunks)
    names = [*_NAMES.get(language, _LATIN_NAMES)]
    chance.shuffle(names)
    known = chunks.casefold()
    name = next((name for name in names if name.casefold() not in known), None)
    if name is None:
        return None
    template = chance.choice(_TEMPLATES[language])
    return template.format(name=name, year=chance.randrange(1702, 1960), count=chance.randrange(11, 98))


def language_of(text: str) -> str:
    """Guess the language from scripts and the commonest words; English by default."""
    sample = text[:_SAMPLE_CHARS].casefold()
    if not sample.isascii():
        letters = sum(map(str.isalpha, sample))
        for language, script in _SCRIPTS.items():
            if len(script.findall(sample)) > _LEAST_SHARE * letters:
                return language
    words = Counter(filter(_TELLING.__contains__, sample.split()))
    return max(
        _COMMON_WORDS,
        key=lambda language: sum(words[word] for word in words.keys() & _COMMON_WORDS[language]),
    )
